"""Whatever order records end in, what may be committed never passes one that is not done (promise 2)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streams.runtime.acks import OrderedAcks


@st.composite
def _runs(draw: st.DrawFn) -> tuple[list[int], list[list[int]]]:
    """Offsets in growing order with gaps, and groups of them in the order in which they are done."""
    gaps = draw(st.lists(st.integers(1, 5), min_size=1, max_size=40))
    offset = draw(st.integers(0, 1_000))
    offsets = []
    for gap in gaps:
        offsets.append(offset)
        offset += gap
    order = draw(st.permutations(offsets))
    done = order[: draw(st.integers(0, len(order)))]
    groups: list[list[int]] = []
    while done:
        size = draw(st.integers(1, len(done)))
        groups.append(done[:size])
        done = done[size:]
    return offsets, groups


def _position(taken: list[int], done: set[int]) -> int | None:
    position = None
    for offset in taken:
        if offset not in done:
            break
        position = offset + 1
    return position


@given(_runs())
def test_any_order_of_completion(run: tuple[list[int], list[list[int]]]) -> None:
    offsets, groups = run
    acks = OrderedAcks()
    for offset in offsets:
        acks.take(offset, timestamp=offset * 10)
    done: set[int] = set()
    assert acks.position is None
    for group in groups:
        acks.done(group)
        done.update(group)
        assert acks.position == _position(offsets, done)
        waiting = [offset for offset in offsets if acks.position is None or offset >= acks.position]
        assert len(acks) == len(waiting)
        assert acks.oldest == (waiting[0] * 10 if waiting else None)


@given(st.lists(st.booleans(), max_size=60), st.randoms(use_true_random=False))
def test_taking_and_ending_in_turns(steps: list[bool], random: object) -> None:
    acks = OrderedAcks()
    taken: list[int] = []
    done: set[int] = set()
    for take in steps:
        if take:
            taken.append(taken[-1] + random.randint(1, 3) if taken else 0)  # type: ignore[attr-defined]
            acks.take(taken[-1])
        elif open_ := [offset for offset in taken if offset not in done]:
            offset = random.choice(open_)  # type: ignore[attr-defined]
            done.add(offset)
            acks.done([offset])
        assert acks.position == _position(taken, done)


def test_offset_0_unfinished_holds_all_others_back() -> None:
    acks = OrderedAcks()
    for offset in range(5):
        acks.take(offset)
    acks.done([1, 2, 3, 4])
    assert acks.position is None
    acks.done([0])
    assert acks.position == 5


@pytest.mark.parametrize("offset", [3, 4])
def test_an_offset_out_of_order_is_a_fault(offset: int) -> None:
    acks = OrderedAcks()
    acks.take(4)
    with pytest.raises(ValueError, match=f"offset {offset} taken after 4"):
        acks.take(offset)


def test_an_offset_that_was_released_is_not_taken_again() -> None:
    acks = OrderedAcks()
    acks.take(4)
    acks.done([4])
    with pytest.raises(ValueError, match="everything before 5"):
        acks.take(4)
    acks.take(5)
