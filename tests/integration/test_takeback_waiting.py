"""How long a fork waits for a source on another partition, and who waits with it (W8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from schemas.delivery import Position
from services.failures import Poison
from services.takeback.source import FORK_POLL, FORK_WAIT
from services.window.incoming import Delivered
from services.window.service import Window
from services.work import Work
from tests.integration.takeback_state import EPOCH, delivered, recorded
from tests.integration.test_takeback import CHUNK, MODEL

START = 1_790_000_000.0
"""Seconds; the events of these tests are written about then."""

SOURCE, FORK = 0, 1
"""Partitions."""


class Time:
    """A clock that moves when somebody sleeps. `meanwhile` happens while they do."""

    def __init__(self, now: float) -> None:
        self.now = now
        self.waits: list[float] = []
        self.meanwhile: Callable[[], Awaitable[Any]] | None = None

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.waits.append(seconds)
        if self.meanwhile is not None:
            await self.meanwhile()


class Partition:
    """A worker of one partition. `at`: seconds after START, when its next event was written."""

    def __init__(self, redis: Redis, time: Time, number: int) -> None:
        self.number = number
        self.window = Window(redis, len, CHUNK, time, time.sleep)
        self.offset = 0

    def event(self, body: dict[str, Any], chat: str, at: float = 0.0) -> Delivered:
        self.offset += 1
        event = delivered({"id": f"e{self.number}.{self.offset}", **body}, self.offset, chat=chat)
        position = Position(EPOCH, self.number, self.offset)
        return event._replace(position=position, timestamp=int((START + at) * 1000))

    async def apply(self, *events: Delivered) -> list[Work | Poison]:
        return await self.window.apply(events)

    async def record(self, number: int, chat: str = "c1", at: float = 0.0) -> None:
        said = [(f"m{number}.0", "asks"), (f"m{number}.1", "says")]
        body = recorded(f"t{number}", said, f"r{number}", model=MODEL)
        [result] = await self.apply(self.event(body, chat, at))
        assert isinstance(result, Work), result


def forked(turn: int, source: str = "c1") -> dict[str, Any]:
    return {"type": "chat.forked", "source": {"chat": source, "turn": f"t{turn}"}}


@pytest.fixture
def time() -> Time:
    return Time(START)


@pytest.fixture
def source(redis: Redis, time: Time) -> Partition:
    return Partition(redis, time, SOURCE)


@pytest.fixture
def fork(redis: Redis, time: Time) -> Partition:
    return Partition(redis, time, FORK)


@pytest.mark.rule("W8")
async def test_a_fork_waits_for_its_source_and_turns_of_it_wait_for_the_fork(
    redis: Redis, time: Time, source: Partition, fork: Partition
) -> None:
    await source.record(0)

    async def arrives() -> None:
        if len(time.waits) == 3:
            await source.record(1)

    time.meanwhile = arrives
    turn = recorded("t7", [("m7", "asks")], "r7")
    results = await fork.apply(fork.event(forked(1), "f1"), fork.event(turn, "f1"))
    assert all(isinstance(result, Work) for result in results)
    assert await redis.lrange("{c:f1}:to", 0, -1) == [b"t0", b"t1", b"t7"]
    assert time.waits == [FORK_POLL] * 3


@pytest.mark.rule("W8")
@pytest.mark.parametrize("ahead", [0.0, 3_600.0])
async def test_forks_of_nothing_are_given_up_together(time: Time, fork: Partition, ahead: float) -> None:
    events = [fork.event(forked(1), f"f{number}", ahead + number / 1000) for number in range(20)]
    results = await fork.apply(*events)
    assert {str(result) for result in results} == {"source.turn: the chat c1 has no turn t1"}
    assert sum(time.waits) == pytest.approx(FORK_WAIT, abs=2 * FORK_POLL)


async def test_no_fork_waits_for_its_own_partition(time: Time, source: Partition) -> None:
    await source.record(0)
    [result] = await source.apply(source.event(forked(1), "f1"))
    assert str(result) == "source.turn: the chat c1 has no turn t1"
    assert time.waits == []


@pytest.mark.rule("W8")
async def test_an_old_fork_finds_its_source_and_waits_for_none(
    redis: Redis, time: Time, source: Partition, fork: Partition
) -> None:
    await source.record(0)
    time.now = START + 5_000
    found, missing = await fork.apply(
        fork.event(forked(0), "f1", at=1.0), fork.event(forked(9), "f2", at=2.0)
    )
    assert isinstance(found, Work)
    assert str(missing) == "source.turn: the chat c1 has no turn t9"
    assert await redis.llen("{c:f1}:to") == 1
    assert time.waits == []
