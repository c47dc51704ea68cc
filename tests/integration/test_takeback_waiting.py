"""How long a fork waits for a source on another partition, and who waits with it (W8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from redis.asyncio import Redis

from schemas.delivery import Position
from services.failures import Poison
from services.state import applied
from services.takeback.source import FORK_GRACE, FORK_POLL, FORK_WAIT
from services.window.incoming import Delivered
from services.window.service import Window
from services.work import Work
from tests.integration.takeback_state import EPOCH, delivered, recorded
from tests.integration.test_takeback import CHUNK, MODEL

START = 1_790_000_000.0
"""Seconds; the events of these tests are written about then."""

SOURCE, FORK = 0, 1
"""Partitions."""

UNKNOWN = "source.turn: the chat c1 has no turn t1"


LOOKS = 20_000
"""More than any of these waits takes: one that does not end fails."""


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
        assert len(self.waits) < LOOKS
        if self.meanwhile is not None:
            await self.meanwhile()


async def of_new(chat: str) -> int:
    """Where a chat is that nobody knows; by its name."""
    return int(chat.rpartition("@")[2]) if "@" in chat else SOURCE


class Partition:
    """A worker of one partition. `at`: seconds after START, when its next event was written."""

    def __init__(self, redis: Redis, time: Time, number: int) -> None:
        self.number = number
        self.redis = redis
        self.window = Window(redis, len, CHUNK, time, time.sleep, of_new)
        self.offset = 0

    def event(self, body: dict[str, Any], chat: str, at: float = 0.0) -> Delivered:
        self.offset += 1
        event = delivered({"id": f"e{self.number}.{self.offset}", **body}, self.offset, chat=chat)
        position = Position(EPOCH, self.number, self.offset)
        return event._replace(position=position, timestamp=int((START + at) * 1000))

    async def apply(self, *events: Delivered) -> list[Work | Poison]:
        return await self.window.apply(events)

    async def report(self, at: float) -> None:
        """All that was written to it until then is applied."""
        await applied.report(self.redis, EPOCH, {self.number: round((START + at) * 1000)})

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
async def test_forks_are_given_up_together_where_nobody_says_how_far_the_source_is(
    time: Time, fork: Partition, ahead: float
) -> None:
    events = [fork.event(forked(1), f"f{number}", ahead + number / 1000) for number in range(20)]
    results = await fork.apply(*events)
    assert {str(result) for result in results} == {UNKNOWN}
    assert sum(time.waits) == pytest.approx(FORK_WAIT, abs=2 * FORK_POLL)


@pytest.mark.rule("W8")
@pytest.mark.parametrize("known", [True, False])
async def test_a_wrong_fork_is_given_up_as_soon_as_its_sources_partition_is_past_it(
    redis: Redis, time: Time, source: Partition, fork: Partition, known: bool
) -> None:
    if known:
        await source.record(0)
    grace = FORK_GRACE / 1000

    async def goes_on() -> None:
        await source.report(time.now - START - 0.5)

    time.meanwhile = goes_on
    results = await fork.apply(*(fork.event(forked(1), f"f{number}", 0.0) for number in range(20)))
    assert {str(result) for result in results} == {UNKNOWN}
    assert sum(time.waits) == pytest.approx(grace + 0.5, abs=2 * FORK_POLL)
    # nothing is left that says that it waits
    assert await redis.hkeys(f"applied:{EPOCH}") == [str(SOURCE).encode()]
    assert 0 < await redis.ttl(f"applied:{EPOCH}") <= applied.KEPT


@pytest.mark.rule("W8")
async def test_a_fork_waits_behind_a_long_backlog_as_long_as_that_gets_shorter(
    redis: Redis, time: Time, source: Partition, fork: Partition
) -> None:
    """The source is an hour behind when the fork is read, and as slow as the time goes by."""
    await source.record(0)
    begun = time.now = START + 3_600.0

    async def works() -> None:
        if len(time.waits) % 100 == 0:
            await source.report(time.now - begun)
        if time.now - begun > 10 * FORK_WAIT and await redis.hlen("{c:c1}:t") == 1:
            await source.record(1)

    time.meanwhile = works
    [result] = await fork.apply(fork.event(forked(1), "f1", at=11 * FORK_WAIT))
    assert isinstance(result, Work)
    assert await redis.llen("{c:f1}:to") == 2
    assert sum(time.waits) > 10 * FORK_WAIT


@pytest.mark.rule("W8")
async def test_forks_are_given_up_where_the_sources_partition_stands_still(
    time: Time, source: Partition, fork: Partition
) -> None:
    await source.report(-50.0)

    async def works() -> None:
        if time.now < START + 30.0:
            await source.report(time.now - START - 40.0)

    time.meanwhile = works
    results = await fork.apply(*(fork.event(forked(1), f"f{number}") for number in range(20)))
    assert {str(result) for result in results} == {UNKNOWN}
    # 30 s in which it came nearer, and once the time that a dead worker gets
    assert sum(time.waits) == pytest.approx(30.0 + FORK_WAIT, abs=4 * FORK_POLL)


@pytest.mark.rule("W8")
@pytest.mark.parametrize("times", [(1.0, 1.4), (1.4, 1.0), (1.0, 1.0)])
async def test_of_two_forks_that_wait_for_each_other_the_first_one_gives_way(
    redis: Redis, time: Time, times: tuple[float, float]
) -> None:
    """Each is in front of what the other waits for; what is applied of a partition is then what lies before its fork."""
    one, two = Partition(redis, time, 1), Partition(redis, time, 2)
    time.now = START + 5.0
    waiting: list[asyncio.Event] = []

    async def sleep(seconds: float) -> None:
        # both look once, then the time goes on
        turn = asyncio.Event()
        waiting.append(turn)
        if len(waiting) == running:
            time.now += seconds
            time.waits.append(seconds)
            assert len(time.waits) < LOOKS
            woken, waiting[:] = list(waiting), []
            for event in woken:
                event.set()
        await turn.wait()

    running = 2
    for partition, at in zip((one, two), times, strict=True):
        partition.window = Window(redis, len, CHUNK, time, sleep, of_new)
        await partition.report(at)

    async def run(partition: Partition, other: Partition, at: float) -> Work | Poison:
        nonlocal running
        [result] = await partition.apply(
            partition.event(forked(1, f"c@{other.number}"), f"f@{partition.number}", at)
        )
        running -= 1
        # as its worker says then
        await partition.report(10.0)
        for event in waiting:
            event.set()
        waiting.clear()
        return result

    async with asyncio.timeout(30):
        results = await asyncio.gather(run(one, two, times[0]), run(two, one, times[1]))
    assert [str(result) for result in results] == [
        f"source.turn: the chat c@{number} has no turn t1" for number in (2, 1)
    ]
    assert sum(time.waits) < 1.0


@pytest.mark.rule("W8")
async def test_a_fork_behind_a_fork_that_waits_waits_as_well(
    redis: Redis, time: Time, source: Partition, fork: Partition
) -> None:
    """Its own source is right behind the other fork, whose partition takes minutes."""
    third = Partition(redis, time, 2)
    await source.record(0)
    await fork.record(1, "g@1")

    async def works() -> None:
        await fork.report(0.0)
        if time.now < START + 5 * FORK_WAIT:
            await source.report((time.now - START) / 1000)
            # the other fork waits, and its source comes nearer
            await redis.hset(f"applied:{EPOCH}", f"{FORK}:fork", f"{round(START * 1000)} {len(time.waits)}")
        elif await redis.hlen("{c:g@1}:t") == 1:
            await redis.hdel(f"applied:{EPOCH}", f"{FORK}:fork")
            await fork.record(2, "g@1")

    time.meanwhile = works
    [result] = await third.apply(third.event(forked(2, "g@1"), "f3", at=1.0))
    assert isinstance(result, Work)
    assert sum(time.waits) > 4 * FORK_WAIT


async def test_what_was_said_of_a_later_time_stays(redis: Redis) -> None:
    await applied.report(redis, EPOCH, {0: 5_000, 1: 7_000})
    await applied.report(redis, EPOCH, {0: 4_000, 1: 8_000})
    assert await redis.hgetall(f"applied:{EPOCH}") == {b"0": b"5000", b"1": b"8000"}


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
    await source.report(4_000.0)
    found, missing = await fork.apply(
        fork.event(forked(0), "f1", at=1.0), fork.event(forked(9), "f2", at=2.0)
    )
    assert isinstance(found, Work)
    assert str(missing) == "source.turn: the chat c1 has no turn t9"
    assert await redis.llen("{c:f1}:to") == 1
    assert time.waits == []
