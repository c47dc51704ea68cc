"""Memories taken apart as bytes are what decoding them would give, whatever their texts look like."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import from_json

from schemas.memories import Author
from services.context.choices import Choice
from services.context.entries import memory
from services.context.memories import Beyond
from services.context.saved import chosen
from services.context.times import time_text
from services.memories import injection
from services.memories.selection import RECENT, Candidate, is_recent, select
from services.memories.state import Entry, Origin, Wording, held
from tests.unit.test_context_rows import any_text

NOW = 10 * RECENT
SCOPES = ("global", "character:mira")


def wording(text: str, at: int, order: int) -> Wording:
    return Wording(text, Author.character, "mira", at, order, None, 30)


@given(
    any_text().filter(str.strip)
    | st.text("a <>\x1f\x7f\x85\xa0\u1680\u2003\u2028\u3000\néกあ“\n", min_size=1),
    any_text(),
    st.none() | any_text(),
    st.booleans(),
    st.integers(0, NOW),
    st.none() | st.builds(Origin, any_text(), any_text()),
)
@example("plain text", "mem-1", None, True, NOW, None)
@example("Ist der Schlüssel im Café? กุญแจ", "mem-1", "mira", False, 5, Origin("c1", "t1"))
def test_an_entry_is_what_was_stored(
    text: str, name: str, character: str | None, pinned: bool, at: int, source: Origin | None
) -> None:
    id = f"m{name}"
    wording = Wording(text, Author.character, character, at, 7, source, 30)
    stored = held(Entry(id, f"character:{name}", pinned, wording, 3, 1, Author.user), 9)
    found = memory(Candidate(7, id, stored.scope, pinned, stored.tokens, b""), stored.value(), NOW)
    recent = NOW - at <= RECENT
    assert from_json(b"".join(found.shown)) == {
        "id": id,
        "scope": f"character:{name}",
        "text": text,
        "pinned": pinned,
        "recent": recent,
        "by": "character",
        "updated_at": time_text(at),
    }
    assert from_json(b'"%b"' % b"".join(found.line)) == injection.line(id, text, pinned=pinned, recent=recent)
    assert (found.order, found.id, found.pinned) == (7, id, pinned)
    assert found.tokens == injection.line_tokens(30, pinned=pinned, recent=recent)


@given(
    st.lists(
        st.tuples(
            any_text().filter(str.strip) | st.sampled_from(["plain", "“quoted” – café", "\u2003edge", "<b>"]),
            st.booleans(),
            st.integers(0, NOW),
        ),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 2 * RECENT),
)
@example([("plain", False, NOW - RECENT)], 1)
@example([("plain", False, NOW - RECENT)], 0)
def test_what_was_chosen_before_is_made_as_if_for_the_first_time(
    saved: list[tuple[str, bool, int]], later: int
) -> None:
    stored = [
        held(
            Entry(f"mem-{number}", SCOPES[number % 2], pinned, wording(text, at, number), 3, 1, Author.user),
            9,
        )
        for number, (text, pinned, at) in enumerate(saved)
    ]
    entries = [
        Candidate(each.order, each.id, each.scope, each.pinned, each.tokens, each.body) for each in stored
    ]
    selection = select([entries])
    choice = Choice.of(4, selection, Beyond(), NOW)
    assert not any(each.body for each in choice.entries if isinstance(each, Candidate))
    values = {each.id: each.value() for each in stored}
    now = NOW + later
    found = choice.filled([values[id] for _, ids in choice.asked for id in ids], now, ())
    anew = chosen(selection, now)
    held_on = all(is_recent(at, NOW) == is_recent(at, now) for _, _, at in saved)
    assert choice.holds(4, now) or not held_on
    assert not choice.holds(5, now)
    if choice.holds(4, now):
        assert (found.pinned, found.unpinned) == (anew.pinned, anew.unpinned)
