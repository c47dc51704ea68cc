"""Up to when a partition is done: never later than what is known for sure."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from faust.types import TP

from streams.runtime.acks import OrderedAcks
from streams.runtime.watermarks import Watermarks

TURNS = TP("turns", 3)


class Fetching:
    """A consumer whose broker's answers a test decides."""

    def __init__(self) -> None:
        self.acks: dict[TP, OrderedAcks] = {}
        self.partitions = {TURNS}
        self.answer: tuple[int, int] | None = None
        self.committed: int | None = None

    def assignment(self) -> set[TP]:
        return self.partitions

    def fetched(self, tp: TP) -> tuple[int, int] | None:
        return self.answer

    def done_before(self, tp: TP) -> int | None:
        acks = self.acks.get(tp)
        position = None if acks is None else acks.unfinished
        return self.committed if position is None else position


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


@pytest.fixture
def watermarks(fetching: Fetching) -> Watermarks:
    return Watermarks(fetching, "turns")


def test_nothing_is_said_before_two_answers(fetching: Fetching, watermarks: Watermarks) -> None:
    assert watermarks.read() == {}
    fetching.answer = (1_000, 0)
    assert watermarks.read() == {}
    assert watermarks.read() == {}
    fetching.answer = (1_050, 0)
    # the second was asked for after the first had come
    assert watermarks.read() == {3: 1_000}
    assert watermarks.read() == {3: 1_000}


def test_the_oldest_record_that_is_not_done_is_the_border(fetching: Fetching, watermarks: Watermarks) -> None:
    acks = fetching.acks[TURNS] = OrderedAcks()
    for at in (9_000, 9_500):
        fetching.answer = (at, 12)
        watermarks.read()
    acks.take(10, 7_000)
    acks.take(11, 7_500)
    assert watermarks.read() == {3: 7_000}
    acks.done([11])
    assert watermarks.read() == {3: 7_000}
    acks.done([10])
    assert watermarks.read() == {3: 9_000}


def test_what_has_arrived_and_is_not_taken_yet_is_not_done(
    fetching: Fetching, watermarks: Watermarks
) -> None:
    acks = fetching.acks[TURNS] = OrderedAcks()
    acks.take(10, 7_000)
    acks.done([10])
    for at in (9_000, 9_500):
        fetching.answer = (at, 12)
        assert watermarks.read() == {}


def test_a_new_assignment_starts_from_what_is_committed(fetching: Fetching, watermarks: Watermarks) -> None:
    for at in (9_000, 9_500):
        fetching.answer = (at, 12)
        assert watermarks.read() == {}
    fetching.committed = 12
    assert watermarks.read() == {3: 9_000}
    fetching.answer = (9_900, 13)
    assert watermarks.read() == {}


def test_a_record_of_a_clock_that_is_ahead_says_nothing_of_the_future(
    fetching: Fetching, watermarks: Watermarks
) -> None:
    acks = fetching.acks[TURNS] = OrderedAcks()
    acks.take(10, 99_000)
    for at in (9_000, 9_500):
        fetching.answer = (at, 12)
        watermarks.read()
    assert watermarks.read() == {3: 9_000}


def test_a_partition_that_is_gone_or_of_another_topic_is_not_reported(
    fetching: Fetching, watermarks: Watermarks
) -> None:
    fetching.partitions = {TURNS, TP("others", 4)}
    for at in (9_000, 9_500):
        fetching.answer = (at, 0)
        found = watermarks.read()
    assert found == {3: 9_000}
    fetching.partitions = set()
    assert watermarks.read() == {}


async def test_it_is_said_again_and_again(fetching: Fetching, watermarks: Watermarks) -> None:
    told: list[dict[int, int]] = []

    async def sleep(seconds: float) -> None:
        fetching.answer = (1_000 * (len(told) + rounds.pop()), 0)

    async def report(times: Mapping[int, int]) -> None:
        told.append(dict(times))

    rounds = [3, 2, 1]
    with pytest.raises(IndexError):
        await asyncio.wait_for(watermarks.keep_reporting(report, sleep), 5)
    assert told == [{3: 1_000}, {3: 2_000}]
