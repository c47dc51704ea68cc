"""Reads what the agents publish, as an observer without a consumer group: for showing, and for the sum that was sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

from aiokafka import AIOKafkaConsumer
from pydantic import TypeAdapter

from schemas.chunks import ChunkClosed
from schemas.delivery import Topics
from schemas.memories import MemoryChanged
from schemas.summaries import SummarySaved
from schemas.usage import UsageBooked
from services.credits.policy import PriceTable, charge
from services.settings import Settings
from streams.runtime.offsets import FETCH_WAIT_MS, end_offsets
from streams.runtime.publisher import client_options

Event = ChunkClosed | SummarySaved | UsageBooked | MemoryChanged

_MODELS: dict[str, TypeAdapter[Any]] = {
    Topics.MEMORY_CHANGES: TypeAdapter(MemoryChanged),
    Topics.CHUNKS: TypeAdapter(ChunkClosed),
    Topics.SUMMARIES: TypeAdapter(SummarySaved),
    Topics.USAGE: TypeAdapter(UsageBooked),
}


class Follower:
    """Counts what went by. `say(agent, line)` is told of chunks and summaries."""

    def __init__(self, settings: Settings, prices: PriceTable, say: Callable[[str, str], None]) -> None:
        self._options = client_options(settings)
        self._consumer = AIOKafkaConsumer(*_MODELS, auto_offset_reset="earliest", **self._options)
        self._prices = prices
        self._say = say
        self._task: asyncio.Task[None] | None = None
        self.usage: dict[str, Decimal] = {}
        """Credits by the id of the use: a repeat does not count twice."""

    async def start(self) -> None:
        """Begin to read from the start of the topics."""
        await self._consumer.start()
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._consumer.stop()

    async def caught_up(self, wait: Callable[[], Awaitable[None]]) -> None:
        """Until everything that is in the topics now has been read; `wait` is awaited between two looks."""
        asking = AIOKafkaConsumer(fetch_max_wait_ms=FETCH_WAIT_MS, **self._options)
        await asking.start()
        try:
            ends = await end_offsets(asking, self._consumer.assignment())
        finally:
            await asking.stop()
        for tp, end in ends.items():
            while await self._consumer.position(tp) < end:
                await wait()

    async def _follow(self) -> None:
        async for record in self._consumer:
            if record.value is not None:
                self._tell(_MODELS[record.topic].validate_json(record.value))

    def _tell(self, event: Event) -> None:
        if isinstance(event, MemoryChanged):
            did = ", ".join(f"{result.op} {result.status}" for result in event.results)
            self._say("memories", f"{event.command} by the {event.by.replace('_', ' ')}: {did or 'done'}")
        elif isinstance(event, UsageBooked):
            self.usage[event.id] = charge(self._prices, event)
        elif isinstance(event, ChunkClosed):
            span = event.span
            self._say(
                "window",
                f"chunk {event.index + 1} closed: messages {span.first_seq + 1} to {span.last_seq + 1}, "
                f"{event.tokens:,} tokens",
            )
        else:
            agent = "summarise" if event.tier == "recent" else "merge"
            span = event.span
            self._say(
                agent,
                f"{event.tier.replace('_', '-')} summary of messages {span.first_seq + 1} to {span.last_seq + 1}: "
                f"{event.tokens:,} tokens",
            )
