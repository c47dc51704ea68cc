"""Three loops over the same turns, each run in a process of its own: `python -m tests.bench.loops NAME ...`.

bare   the least that a loop can do: aiokafka, tiktoken, one pipelined script call a turn, commit. No validation,
       no outbox, no retries, no ordered acks: the yardstick.
plain  a Faust agent as its documentation writes one: one await a turn, Faust's own acknowledgements.
agent  the window agent with everything it really does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import faust
import uvloop
from aiokafka import AIOKafkaConsumer
from redis.asyncio import Redis

from schemas.delivery import Record, Topics
from services.failures import Poison
from services.metrics import Metrics
from services.settings import Settings
from services.tokens.counter import default_counter
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from streams import window
from streams.resources import open_resources
from streams.runtime.agent import Agent, Batched
from streams.runtime.heap import settle
from tests.bench.measure import Clock, Result

# what the window's script has to do at least: keep the messages, know the order, count tokens
SCRIPT = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('RPUSH', KEYS[2], ARGV[1])
return redis.call('HINCRBY', KEYS[3], 'tokens', ARGV[3])
"""


def _arguments(value: bytes, count: Callable[[str], int]) -> tuple[Any, ...]:
    event = json.loads(value)
    chat = event["chat"]["id"]
    tokens = sum(count(message["text"]) for message in event["messages"])
    messages = json.dumps(event["messages"])
    return 3, f"{{{chat}}}:m", f"{{{chat}}}:l", f"{{{chat}}}:w", event["turn"]["id"], messages, tokens


async def bare(settings: Settings, turns: int) -> Result:
    """The yardstick."""
    counter = default_counter()
    redis = Redis.from_url(settings.redis)
    sha = await redis.script_load(SCRIPT)
    consumer = AIOKafkaConsumer(
        Topics.TURNS,
        bootstrap_servers=settings.kafka,
        group_id="bench-bare",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    done, clock = 0, None
    while done < turns:
        records = await consumer.getmany(timeout_ms=500, max_records=200)
        if not records:
            continue
        clock = clock or Clock()
        pipe = redis.pipeline(transaction=False)
        for batch in records.values():
            for record in batch:
                pipe.evalsha(sha, *_arguments(record.value, counter))
                done += 1
        await pipe.execute()
        await consumer.commit()
    assert clock is not None
    result = clock.result(done)
    await consumer.stop()
    await redis.aclose()
    return result


async def plain(settings: Settings, turns: int) -> Result:
    """A Faust agent without any of our runtime."""
    counter = default_counter()
    redis = Redis.from_url(settings.redis)
    sha = await redis.script_load(SCRIPT)
    app = faust.App(
        "bench-plain",
        broker=f"kafka://{settings.kafka}",
        store="memory://",
        autodiscover=False,
        set_as_current=False,
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=settings.session_timeout,
        broker_heartbeat_interval=settings.session_timeout / 3,
        logging_config={"version": 1, "disable_existing_loggers": False},
    )
    topic = app.topic(
        Topics.TURNS, key_type=bytes, value_type=bytes, key_serializer="raw", value_serializer="raw"
    )
    finished = asyncio.Event()
    done, clock = 0, None

    async def body(stream: faust.StreamT[bytes]) -> None:
        nonlocal done, clock
        async for value in stream:
            clock = clock or Clock()
            await redis.evalsha(sha, *_arguments(value, counter))
            done += 1
            if done >= turns:
                finished.set()

    app.agent(topic)(body)
    await app.start()
    await finished.wait()
    assert clock is not None
    result = clock.result(done)
    await app.stop()
    await redis.aclose()
    return result


class _Counting(Metrics):
    """Tells when so many records are done."""

    def __init__(self, turns: int) -> None:
        super().__init__("window")
        self.finished = asyncio.Event()
        self._left = turns

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        super().add(name, amount, **labels)
        if name == "done_total":
            self._left -= int(amount)
            if self._left <= 0:
                self.finished.set()


async def agent(settings: Settings, turns: int) -> Result:
    """The window agent."""
    clock = None
    async with open_resources(settings) as resources:
        service = Window(resources.redis, resources.counter, ChunkSize())
        spec = window.agent(service, resources.redis, resources.epochs[Topics.TURNS], settings.batch)
        assert isinstance(spec.work, Batched)
        handle = spec.work.handle

        async def started(records: Sequence[Record]) -> Sequence[Work | Poison]:
            nonlocal clock
            clock = clock or Clock()
            return await handle(records)

        spec = replace(spec, work=replace(spec.work, handle=started))
        metrics = _Counting(turns)
        running = Agent(spec, settings, resources.publisher, metrics)
        settle()
        await running.start()
        await metrics.finished.wait()
        assert clock is not None
        result = clock.result(turns)
        await running.stop()
    return result


LOOPS: dict[str, Callable[[Settings, int], Awaitable[Result]]] = {
    "bare": bare,
    "plain": plain,
    "agent": agent,
}

if __name__ == "__main__":
    name, kafka, redis_url, count = sys.argv[1:5]
    print(uvloop.run(LOOPS[name](Settings(kafka=kafka, redis=redis_url), int(count))).as_json())  # type: ignore[arg-type]
