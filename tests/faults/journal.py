"""Everything that is in the topics, read from the first record to the last without a consumer group."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition

from infra import topics
from streams.runtime.offsets import end_offsets


class Entry(NamedTuple):
    """A record as it is in the log."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, str]

    @property
    def event(self) -> dict[str, Any]:
        """Its value as JSON; a tombstone has none."""
        assert self.value is not None
        found: dict[str, Any] = json.loads(self.value)
        return found


async def read(bootstrap: str) -> dict[str, list[Entry]]:
    """All records by topic, each partition in order."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        wanted = topics.wanted()
        places = [TopicPartition(spec.name, number) for spec in wanted for number in range(spec.partitions)]
        ends = await end_offsets(consumer, places)
        for tp in places:
            consumer.seek(tp, 0)
        left = {tp for tp in places if ends[tp] > 0}
        found: dict[str, list[Entry]] = {spec.name: [] for spec in wanted}
        while left:
            for records in (await consumer.getmany(timeout_ms=200, max_records=2_000)).values():
                for r in records:
                    headers = {name: value.decode() for name, value in r.headers}
                    entry = Entry(r.topic, r.partition, r.offset, r.key, r.value, headers)
                    found[r.topic].append(entry)
            left = {tp for tp in left if await consumer.position(tp) < ends[tp]}
        return found
    finally:
        await consumer.stop()
