"""Which dead letters are dealt with. Kafka cannot delete one record, so that Redis remembers them and lists hide them.

One hash for each partition of a topic of dead letters: `dlq:<epoch>:<partition>`, field offset, value `<how> <when>`.
The epoch is the log's identity (docs/decisions/0001), so that a topic that was made again has nothing dealt with.
Losing the hashes makes the dead letters visible again, no more: whatever is replayed twice takes effect once.

Raises redis.RedisError where the store is away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import cast

from redis.asyncio import Redis

from services.deadletters.policy import Place

KEPT_SECONDS = 120 * 86_400
"""The hashes of a log go this long after their last change: dead letters are kept for 90 days (topics.yaml)."""


class How(StrEnum):
    """What was done."""

    replayed = "replayed"
    dropped = "dropped"


class Handled:
    """`epochs` is the epoch of each topic by its name (infra.topics.read_epochs)."""

    def __init__(self, redis: Redis, epochs: Mapping[str, str]) -> None:
        self._redis = redis
        self._epochs = epochs

    async def of(self, topic: str, partition: int) -> dict[int, str]:
        """Offset -> how and when, of one partition."""
        found = cast("dict[bytes, bytes]", await self._redis.hgetall(self._key(topic, partition)))
        return {int(offset): value.decode() for offset, value in found.items()}

    async def mark(
        self, places: Iterable[Place], how: How, at: datetime, starts: Mapping[tuple[str, int], int]
    ) -> None:
        """Remember these. `starts` is each partition's first offset: what was dealt with before it is forgotten."""
        by_partition: dict[tuple[str, int], list[int]] = {}
        for topic, partition, offset in places:
            by_partition.setdefault((topic, partition), []).append(offset)
        value = f"{how} {at.isoformat(timespec='seconds')}"
        for (topic, partition), offsets in by_partition.items():
            key = self._key(topic, partition)
            start = starts.get((topic, partition), 0)
            gone = [offset for offset in await self._redis.hkeys(key) if int(offset) < start]
            async with self._redis.pipeline(transaction=True) as pipe:
                pipe.hset(key, mapping={str(offset): value for offset in offsets})
                if gone:
                    pipe.hdel(key, *gone)
                pipe.expire(key, KEPT_SECONDS)
                await pipe.execute()

    def _key(self, topic: str, partition: int) -> str:
        return f"dlq:{self._epochs[topic]}:{partition}"
