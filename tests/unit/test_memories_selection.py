"""Which saved memories a context has: all pins, and the others evenly (M6)."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import limits
from services.memories.selection import RECENT, Candidate, is_recent, select


def memory(scope: str, order: int, *, pinned: bool = False) -> Candidate:
    return Candidate(order, f"mem-{order}", scope, pinned, 5, b"")


@st.composite
def stores(draw: st.DrawFn) -> list[list[Candidate]]:
    """Up to six scopes within their caps; `order` is of the user, so that no two entries share one."""
    sizes = st.tuples(
        st.integers(0, limits.MEMORIES_UNPINNED) | st.integers(0, 6), st.integers(0, limits.MEMORIES_PINNED)
    )
    caps = draw(st.lists(sizes, max_size=6))
    places = [(at, at_pin < pins) for at, (free, pins) in enumerate(caps) for at_pin in range(free + pins)]
    seed = draw(st.randoms(use_true_random=False))
    seed.shuffle(places)
    scopes: list[list[Candidate]] = [[] for _ in caps]
    for order, (at, pinned) in enumerate(places):
        scopes[at].append(memory(f"character:{at}", order, pinned=pinned))
    return scopes


@pytest.mark.rule("M6", "M8")
@given(stores())
def test_every_pin_is_in_and_nothing_is_lost(scopes: list[list[Candidate]]) -> None:
    chosen = select(scopes)
    everything = [each for scope in scopes for each in scope]
    assert set(chosen.pinned) == {each for each in everything if each.pinned}
    assert sorted([*chosen.pinned, *chosen.unpinned, *chosen.beyond]) == sorted(everything)
    free = sum(not each.pinned for each in everything)
    assert len(chosen.unpinned) == min(free, limits.MEMORIES_UNPINNED)


@pytest.mark.rule("M6")
@given(stores(), st.integers(0, limits.MEMORIES_UNPINNED))
def test_scopes_share_evenly_and_who_has_fewer_leaves_its_share(
    scopes: list[list[Candidate]], taken: int
) -> None:
    chosen = select(scopes, taken)
    got = Counter(each.scope for each in chosen.unpinned)
    # whoever has some left got at most one less than anybody
    most = max(got.values(), default=0)
    assert all(got[scope] >= most - 1 for scope in {each.scope for each in chosen.beyond})


@pytest.mark.rule("M6")
@given(stores(), st.integers(0, limits.MEMORIES_UNPINNED))
def test_in_each_scope_the_newest_go_in(scopes: list[list[Candidate]], taken: int) -> None:
    chosen = select(scopes, taken)
    for scope in {each.scope for each in chosen.beyond}:
        oldest = min((each.order for each in chosen.unpinned if each.scope == scope), default=10**9)
        assert all(each.order < oldest for each in chosen.beyond if each.scope == scope)


@given(stores(), st.randoms(use_true_random=False))
def test_the_same_memories_give_the_same_choice(scopes: list[list[Candidate]], random: object) -> None:
    shuffled = [list(reversed(scope)) for scope in reversed(scopes)]
    assert select(shuffled) == select(scopes)


@pytest.mark.rule("M6")
def test_the_last_place_goes_to_the_newest() -> None:
    scopes = [[memory("a", 1), memory("a", 6)], [memory("b", 2), memory("b", 5)], [memory("c", 3)]]
    assert [each.order for each in select(scopes, 4).unpinned] == [6, 5, 3, 2]


@pytest.mark.rule("M6")
def test_five_full_scopes_and_the_global_one() -> None:
    scopes = [
        [memory(f"s{at}", 1_000 * at + number, pinned=number < 20) for number in range(120)]
        for at in range(6)
    ]
    chosen = select(scopes)
    assert len(chosen.pinned) == 120
    assert sorted(Counter(each.scope for each in chosen.unpinned).values()) == [16, 16, 17, 17, 17, 17]
    assert len(chosen.beyond) == 500


@pytest.mark.rule("M6")
def test_recent_is_the_last_seven_days() -> None:
    assert RECENT == 7 * 24 * 3600 * 1000
    assert is_recent(5, 5 + RECENT)
    assert not is_recent(5, 6 + RECENT)
