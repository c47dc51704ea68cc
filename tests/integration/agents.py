"""Agents for the tests of the runtime: started and stopped by the test, on a topic that the pipeline has anyway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from schemas.delivery import Topics
from services.metrics import Metrics
from services.settings import Settings
from streams.runtime.agent import Agent, AgentSpec, Batched, Keyed
from streams.runtime.handling import Publishes
from streams.runtime.publisher import Publisher
from tests.stack import Broker, until

TOPIC = Topics.CHUNKS
NAME = "summarise"
DEAD = f"{TOPIC}.{NAME}.dlq"
GROUP = f"afterturn-{NAME}"
HEADERS = [("x", b"\xff")]


def settings(broker: Broker, **changes: Any) -> Settings:
    """Settings of a worker on this broker."""
    if broker.kind == "embedded":
        # Tansu waits half of it before the first member of a group has joined
        changes.setdefault("session_timeout", 3.0)
    return Settings(kafka=broker.bootstrap, **changes)


@asynccontextmanager
async def publisher(broker: Broker) -> AsyncIterator[Publisher]:
    """A publisher that is connected."""
    created = Publisher(settings(broker))
    await created.start()
    try:
        yield created
    finally:
        await created.stop()


class Workers:
    """Agents of one group. Each that was started is stopped at the end."""

    def __init__(self, broker: Broker, publishes: Publishes) -> None:
        self.broker = broker
        self.publishes = publishes
        self.agents: list[Agent] = []

    async def start(self, work: Keyed | Batched, **changes: Any) -> Agent:
        """Another worker of the group, which has joined when this returns."""
        spec = AgentSpec(NAME, TOPIC, work)
        agent = Agent(spec, settings(self.broker, **changes), self.publishes, Metrics(NAME))
        self.agents.append(agent)
        await agent.start()

        async def joined() -> bool:
            return agent.assigned

        await until(joined, "the worker has joined its group")
        return agent

    async def stop(self, agent: Agent) -> None:
        """SIGTERM."""
        self.agents.remove(agent)
        await agent.stop()

    async def kill(self, agent: Agent) -> None:
        """As if by SIGKILL: what is in flight is gone, and nothing more is committed."""

        async def nothing(*_: Any, **__: Any) -> bool:
            return False

        agent.consumer.force_commit = nothing
        agent._flights._on_failure = lambda error: None
        for task in list(agent._flights._tasks):
            task.cancel()
        await self.stop(agent)


@asynccontextmanager
async def workers(broker: Broker, publishes: Publishes) -> AsyncIterator[Workers]:
    """No worker is left when the test ends."""
    group = Workers(broker, publishes)
    try:
        yield group
    finally:
        for agent in list(group.agents):
            await group.stop(agent)


async def produce(
    broker: Broker, records: Sequence[tuple[bytes | None, bytes | None]], partition: int | None = None
) -> None:
    """(key, value) records on the topic, confirmed; on one partition where it is given."""
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    await producer.start()
    try:
        sent = []
        for key, value in records:
            if key is None and value is None:
                # what this client refuses to send, and others do not
                batch = producer.create_batch()
                batch.append(timestamp=None, key=None, value=None, headers=HEADERS)
                sent.append(await producer.send_batch(batch, TOPIC, partition=partition or 0))
            else:
                sent.append(
                    await producer.send(TOPIC, key=key, value=value, partition=partition, headers=HEADERS)
                )
        for confirmed in sent:
            await confirmed
    finally:
        await producer.stop()


async def committed(broker: Broker, partition: int = 0) -> int:
    """The group's offset; -1 where it has none."""
    # assigned by hand: it asks for the group's offsets and does not join it
    consumer = AIOKafkaConsumer(
        bootstrap_servers=broker.bootstrap, group_id=GROUP, enable_auto_commit=False, auto_offset_reset="none"
    )
    topic_partition = TopicPartition(TOPIC, partition)
    await consumer.start()
    try:
        consumer.assign([topic_partition])
        offset = await consumer.committed(topic_partition)
    finally:
        await consumer.stop()
    return -1 if offset is None else int(offset)


async def dead_letters(broker: Broker, count: int) -> list[Any]:
    """The first `count` dead letters."""
    consumer = AIOKafkaConsumer(DEAD, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    found: list[Any] = []
    try:

        async def enough() -> bool:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found.extend(records)
            return len(found) >= count

        await until(enough, f"{count} dead letters")
    finally:
        await consumer.stop()
    return found
