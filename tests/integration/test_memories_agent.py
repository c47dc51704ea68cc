"""The agent memories: records of the log in, results out, on the runtime that all agents share."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from redis.asyncio import Redis

from infra import topics
from schemas import limits
from schemas.delivery import Record, Topics
from schemas.memories import MemoryChanged
from services.failures import Poison
from services.memories.service import Memories
from services.metrics import Metrics
from services.state import keys
from services.work import DONE, Work
from streams.memories import agent
from streams.pipeline import AGENTS
from streams.runtime.agent import Agent, AgentSpec, Batched
from tests.integration.agents import publisher, settings
from tests.integration.memories_state import agrees, read
from tests.memories import characters
from tests.stack import Broker, until


def spec(redis: Redis) -> AgentSpec:
    """The agent, as the pipeline makes it."""
    return agent(Memories(redis, characters, clock=lambda: datetime.now(UTC)), "log-1", 100)


def body(number: int, user: str = "u1", **fields: Any) -> bytes:
    """A command as a frontend writes it."""
    told = {
        "type": "memory.ops",
        "id": f"k{number}",
        "at": "2026-11-30T10:00:00Z",
        "user_id": user,
        "by": "user",
        "ops": [{"op": "save", "text": f"fact {number}"}],
        **fields,
    }
    return json.dumps(told).encode()


def record(offset: int, value: bytes | None, key: bytes | None = b"u1") -> Record:
    return Record(Topics.MEMORY_COMMANDS, 0, offset, key, value, (), 1_790_000_000_000)


async def handle(redis: Redis, *records: Record) -> list[Work | Poison]:
    work = spec(redis).work
    assert isinstance(work, Batched)
    return list(await work.handle(records))


def test_it_is_one_of_the_agents() -> None:
    assert AGENTS["memories"] == Topics.MEMORY_COMMANDS


async def test_each_record_gets_its_answer_in_order(redis: Redis) -> None:
    done, poison, tombstone, other = await handle(
        redis, record(1, body(1)), record(2, b"{"), record(3, None), record(4, body(4))
    )
    assert isinstance(poison, Poison)
    assert tombstone is DONE
    assert isinstance(done, Work)
    assert isinstance(other, Work)
    assert [json.loads(work.publish[0].value)["command_id"] for work in (done, other)] == ["k1", "k4"]
    agrees(await read(redis))


@pytest.mark.parametrize(
    ("value", "key", "named"),
    [
        (b"", b"u1", "value: "),
        (b"\xff", b"u1", "value: "),
        (body(1, type="memory.sing"), b"u1", "value: type is none of"),
        (body(1), b"u2", "key: is not the user_id"),
        (body(1), None, "key: is not the user_id"),
        (body(1, user="two words"), b"two words", "user_id: "),
        (body(1, ops=[{}] * (limits.MEMORY_OPS + 1)), b"u1", "ops: "),
        (body(1, at="yesterday"), b"u1", "at: "),
        (body(1, by="nobody"), b"u1", "by: "),
        (body(1, type="memory.clear", scope="everything"), b"u1", "scope: "),
        (b" " * (limits.EVENT_BYTES + 1), b"u1", "value: has"),
    ],
)
async def test_a_wrong_record_names_its_field(
    redis: Redis, value: bytes, key: bytes | None, named: str
) -> None:
    [poison] = await handle(redis, record(1, value, key))
    assert isinstance(poison, Poison)
    assert str(poison).startswith(named)
    assert (await read(redis)).fields == {}


@pytest.mark.rule("M7", "F1")
async def test_from_the_log_to_the_log(broker: Broker, redis: Redis) -> None:
    """A frontend writes commands and reads what became of them; a wrong one is a dead letter."""
    dead = topics.dead_letters(Topics.MEMORY_COMMANDS, "memories")
    consumer = AIOKafkaConsumer(
        Topics.MEMORY_CHANGES, dead, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest"
    )
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    found: dict[str, list[Any]] = {Topics.MEMORY_CHANGES: [], dead: []}
    await producer.start()
    await consumer.start()
    async with publisher(broker) as publishes:
        running = Agent(spec(redis), settings(broker), publishes, Metrics("memories"))
        await running.start()
        try:
            for number in range(20):
                user = f"u{number % 2}"
                await producer.send(Topics.MEMORY_COMMANDS, key=user.encode(), value=body(number, user))
            await producer.send(Topics.MEMORY_COMMANDS, key=b"u1", value=None)
            await producer.send_and_wait(Topics.MEMORY_COMMANDS, key=b"u1", value=b"{}")

            async def enough() -> bool:
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for each in records:
                        found[each.topic].append(each)
                return len(found[Topics.MEMORY_CHANGES]) >= 20 and len(found[dead]) >= 1

            await until(enough, "all that is to come of the commands")

            async def trimmed() -> bool:
                return not await redis.exists(*(keys.UserKeys.of(user).outbox for user in ("u0", "u1")))

            await until(trimmed, "the outboxes are trimmed")
        finally:
            await running.stop()
            await consumer.stop()
            await producer.stop()
    results = [MemoryChanged.model_validate_json(each.value) for each in found[Topics.MEMORY_CHANGES]]
    assert len(found[dead]) == 1
    for at, user in enumerate(("u0", "u1")):
        state = await read(redis, user)
        agrees(state)
        told = [result.command_id for result in results if result.user_id == user]
        assert told == [f"k{number}" for number in range(at, 20, 2)]
        assert len(state.entries) == 10
