"""How far a consumer group is behind, read from the broker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from streams.runtime.offsets import FETCH_WAIT_MS, end_offsets


class Lag:
    """Asks one broker; use `open_lag`."""

    def __init__(self, admin: AIOKafkaAdminClient, consumer: AIOKafkaConsumer) -> None:
        self._admin = admin
        self._consumer = consumer

    async def of(self, group: str, topic: str) -> int:
        """Records of `topic` that `group` has not committed, over all partitions."""
        partitions = [TopicPartition(topic, number) for number in await self._partitions(topic)]
        ends = await end_offsets(self._consumer, partitions)
        starts = await self._consumer.beginning_offsets(partitions)
        committed = await self._admin.list_consumer_group_offsets(group, partitions=partitions)
        lag = 0
        for tp in partitions:
            known = committed.get(tp)
            position = known.offset if known is not None and known.offset >= 0 else starts[tp]
            lag += max(0, ends[tp] - max(position, starts[tp]))
        return lag

    async def _partitions(self, topic: str) -> list[int]:
        described = await self._admin.describe_topics([topic])
        return [partition["partition"] for partition in described[0]["partitions"]]


@asynccontextmanager
async def open_lag(options: dict[str, Any]) -> AsyncIterator[Lag]:
    """`options` connect aiokafka's clients (streams/runtime/publisher.client_options)."""
    admin = AIOKafkaAdminClient(**options)
    consumer = AIOKafkaConsumer(**options, fetch_max_wait_ms=FETCH_WAIT_MS)
    await admin.start()
    try:
        await consumer.start()
        try:
            yield Lag(admin, consumer)
        finally:
            await consumer.stop()
    finally:
        await admin.close()
