"""Committed offsets of all groups over time: how long it takes after a kill until every partition goes on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

from streams.pipeline import AGENTS, group
from tests.faults.workers import Kill

PARTITIONS = 12
_PAUSE = 0.3

Offsets = dict[int, tuple[int, int]]
"""Partition -> committed, end."""


class Sample(NamedTuple):
    """One look at a group."""

    at: float
    offsets: Offsets


class Progress:
    """Samples of each agent's group, oldest first."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.samples: dict[str, list[Sample]] = {agent: [] for agent in AGENTS}

    async def watch(self) -> None:
        """Look again and again until cancelled; what the broker refuses during a rebalance is asked again."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        await admin.start()
        await consumer.start()
        try:
            while True:
                for agent, topic in AGENTS.items():
                    try:
                        self.samples[agent].append(await _look(admin, consumer, agent, topic))
                    except KafkaError:
                        continue
                await asyncio.sleep(_PAUSE)
        finally:
            await consumer.stop()
            await admin.close()

    def recovery(self, kill: Kill) -> float | None:
        """Seconds from a kill until every partition that was behind has gone on; None where none was or it was not seen."""
        samples = self.samples[kill.agent]
        before = [sample for sample in samples if sample.at <= kill.at]
        if not before:
            return None
        waiting = {number: done for number, (done, end) in before[-1].offsets.items() if done < end}
        if not waiting:
            return None
        for sample in samples[len(before) :]:
            if all(sample.offsets[number][0] > done for number, done in waiting.items()):
                return sample.at - kill.at
        return None

    def recoveries(self, kills: Sequence[Kill]) -> list[float]:
        """The recovery times that could be seen, shortest first."""
        return sorted(seconds for kill in kills if (seconds := self.recovery(kill)) is not None)


async def _look(admin: AIOKafkaAdminClient, consumer: AIOKafkaConsumer, agent: str, topic: str) -> Sample:
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    at = time.monotonic()
    committed = await admin.list_consumer_group_offsets(group(agent), partitions=places)
    ends = await consumer.end_offsets(places)
    known = {tp.partition: max(0, meta.offset) for tp, meta in committed.items()}
    return Sample(at, {tp.partition: (known.get(tp.partition, 0), ends[tp]) for tp in places})


@asynccontextmanager
async def watched(bootstrap: str) -> AsyncIterator[Progress]:
    """A watch that ends with the block."""
    progress = Progress(bootstrap)
    task = asyncio.create_task(progress.watch())
    try:
        yield progress
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
