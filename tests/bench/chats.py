"""Chats that grow without a broker: the window's service on Redis, and the summaries of what leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from pydantic import TypeAdapter
from redis.asyncio import Redis

from schemas.chunks import ChunkClosed
from schemas.delivery import Outgoing, Position, Topics
from schemas.summaries import SummarySaved
from schemas.turns import TURN_EVENT, TurnEvent
from services.failures import Poison
from services.summaries.port import Summariser
from services.summaries.service import Summaries
from services.tokens.counter import TokenCounter
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from tests.bench import load
from tests.bench.clipping import Clipping

BATCH = 40
AT_MS = 1_780_000_000_000
_CHUNK, _SAVED = TypeAdapter(ChunkClosed), TypeAdapter(SummarySaved)


class Chats:
    """Turns go in with `prepare` and `record`; `settle` summarises and merges until nothing is left to do."""

    def __init__(
        self,
        redis: Redis,
        counter: TokenCounter,
        summariser: Summariser | None = None,
        characters: Sequence[str] = load.CHARACTERS,
    ) -> None:
        self._window = Window(redis, counter, ChunkSize())
        self._summaries = Summaries(redis, summariser or Clipping(), counter, clock=lambda: datetime.now(UTC))
        self._characters = characters
        self._offset = 0
        self._closed: list[Outgoing] = []

    def prepare(self, chats: Sequence[str], turns: int) -> list[Delivered]:
        """The next `turns` events, over these chats in turn: validated, not yet recorded."""
        events = []
        for at in range(turns):
            self._offset += 1
            events.append(self._next(load.decoded(self._offset, chats[at % len(chats)], self._characters)))
        return events

    def rewind(self, chat: str, turn: str) -> Delivered:
        """The event that takes back all turns after this one; not yet recorded."""
        self._offset += 1
        event = {
            "type": "chat.rewound",
            "id": f"e-{self._offset}",
            "at": "2026-06-01T12:00:00Z",
            "chat": {"id": chat, "surface": "web", "characters": list(self._characters)},
            "user": {"id": f"user-of-{chat}"},
            "turn": {"id": turn},
        }
        return self._next(TURN_EVENT.validate_python(event))

    def _next(self, event: TurnEvent) -> Delivered:
        return Delivered(event, Position("bench", 0, self._offset), AT_MS + self._offset)

    async def record(self, events: Sequence[Delivered]) -> None:
        """What the window's service does with them, in batches; what it publishes counts as confirmed."""
        for at in range(0, len(events), BATCH):
            for done in await self._window.apply(events[at : at + BATCH]):
                await self._confirm(done)

    async def settle(self) -> None:
        """Chunks that have closed get their summaries; everything due is merged."""
        waiting, self._closed = self._closed, []
        while waiting:
            record = waiting.pop()
            if record.value is None:  # a tombstone
                continue
            if record.topic == Topics.CHUNKS:
                done = await self._summaries.summarise(_CHUNK.validate_json(record.value))
            elif record.topic == Topics.SUMMARIES:
                done = await self._summaries.merge(_SAVED.validate_json(record.value))
            else:
                continue
            waiting += done.publish
            if done.confirmed is not None:
                await done.confirmed()

    async def grow(self, chats: Sequence[str], turns: int) -> None:
        """So many turns more for each of these chats, all of it summarised."""
        left = turns * len(chats)
        while left > 0:
            step = min(left, 5 * BATCH)
            await self.record(self.prepare(chats, step))
            await self.settle()
            left -= step

    async def _confirm(self, done: Work | Poison) -> None:
        if isinstance(done, Poison):
            raise done
        self._closed += done.publish
        if done.confirmed is not None:
            await done.confirmed()
