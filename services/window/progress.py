"""How far the partitions of the log are while they work through a backlog, for who needs to know of another one.

After an outage, or when Redis is filled again from the log, one partition is ahead of the other by hours of records. A
partition that reads what was just written reports nothing: knowing that costs a chat's turn nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from redis.asyncio import Redis

KEY = "afterturn:window:progress"
"""Hash: partition -> time of the newest record that was applied, and when that was reported; both in milliseconds."""

BEHIND = 10.0
"""Seconds. Who applies older records than that works through a backlog."""

EVERY = 1.0
"""Seconds between two reports of a partition."""

FORGOTTEN = 60.0
"""Seconds after which a partition without a new report has no backlog any more. Longer than a group needs to give the
partitions of a worker that died to another one."""


class Backlog(NamedTuple):
    """Of one partition of this worker: when it was first met, and when it was last reported. Seconds since 1970."""

    since: float
    reported: float


class Progress:
    """What this worker reports, and what all of them have. Raises redis.RedisError. `clock` gives seconds since 1970."""

    def __init__(self, redis: Redis, clock: Callable[[], float]) -> None:
        self._redis = redis
        self._clock = clock
        self._backlogs: dict[int, Backlog] = {}

    async def applied(self, partition: int, timestamp: int) -> None:
        """All of a partition up to a record of this time (milliseconds) is applied."""
        now = self._clock()
        backlog = self._backlogs.get(partition)
        if now - timestamp / 1000 <= BEHIND:
            if backlog is not None:
                await self._report(partition, timestamp, now)
                del self._backlogs[partition]
            return
        if backlog is None or now - backlog.reported >= FORGOTTEN:
            backlog = Backlog(now, 0.0)
        if now - backlog.reported >= EVERY:
            await self._report(partition, timestamp, now)
            backlog = backlog._replace(reported=now)
        self._backlogs[partition] = backlog

    async def others_behind(self, partition: int, timestamp: int) -> bool:
        """Whether another partition is on its way to records of this time; for a while also because others may not have
        reported yet that they are."""
        now = self._clock()
        backlog = self._backlogs.get(partition)
        if backlog is not None and now - backlog.since < BEHIND:
            return True
        for name, value in (await self._redis.hgetall(KEY)).items():
            newest, reported = map(int, value.split())
            if int(name) != partition and newest < timestamp and now - reported / 1000 < FORGOTTEN:
                return True
        return False

    async def _report(self, partition: int, timestamp: int, now: float) -> None:
        await self._redis.hset(KEY, str(partition), f"{timestamp} {int(now * 1000)}")
