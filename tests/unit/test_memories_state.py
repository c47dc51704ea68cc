"""What is stored is read as it was."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas.memories import Author
from services.memories.state import (
    Action,
    Change,
    Entry,
    Origin,
    Place,
    Wording,
    dump_change,
    dump_numbers,
    held,
    parse_change,
    parse_entry,
    parse_held,
    parse_numbers,
    parse_place,
)

_ids = st.text(st.characters(exclude_categories=("Z", "C"), exclude_characters="{}"), min_size=1, max_size=20)
_numbers = st.integers(0, 2**40)
_authors = st.sampled_from(Author)
_origins = st.builds(Origin, _ids, st.none() | _ids, st.lists(_ids, max_size=3).map(tuple))
_texts = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=60)
_wordings = st.builds(
    Wording, _texts, _authors, st.none() | _ids, _numbers, _numbers, st.none() | _origins, _numbers
)
_entries = st.builds(Entry, _ids, _ids, st.booleans(), _wordings, _numbers, _numbers, _authors)
_changes = st.builds(
    Change,
    _numbers,
    _numbers,
    _ids,
    st.sampled_from(Action),
    _numbers,
    _authors,
    st.none() | _ids,
    st.none() | _origins,
    _ids,
    _ids,
    st.none() | _wordings,
    st.none() | _wordings,
    st.none() | _ids,
    st.booleans(),
)


@given(_entries, _numbers)
def test_entries(entry: Entry, newest: int) -> None:
    stored = held(entry, newest)
    assert parse_held(entry.id, entry.scope, stored.value()) == stored
    assert parse_entry(entry.id, entry.scope, stored.value()) == entry
    assert (stored.order, stored.newest) == (entry.wording.order, newest)


@given(_changes)
def test_changes(change: Change) -> None:
    value = dump_change(change)
    assert parse_change(value) == change
    # chains.lua reads it from there
    assert value.startswith(b'{"previous":%d,' % change.previous)


_there = st.tuples(_ids, _numbers).map(lambda place: Place(*place))
_gone = st.tuples(st.just(""), _numbers, _ids, st.booleans(), _numbers, _numbers, _authors)


@given(_there | _gone.map(lambda place: Place(*place)))
def test_places(place: Place) -> None:
    assert parse_place(place.value().encode()) == place


@given(st.lists(_numbers))
def test_journals(numbers: list[int]) -> None:
    assert parse_numbers(dump_numbers(numbers).encode()) == tuple(numbers)
