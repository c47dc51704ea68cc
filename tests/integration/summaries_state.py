"""A chat's state as the window agent leaves it, written by hand, and a summariser whose answers a test decides."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from schemas.chat import ChatRef, Level, Surface
from schemas.chunks import ChunkClosed, Span
from schemas.delivery import Outgoing, Topics
from schemas.summaries import Body, Rule, Summary, SummarySaved, Tier, TimelineLine
from schemas.usage import UsageBooked
from services.state import ids, keys
from services.summaries.port import Draft, SourceMessage
from services.work import Work

CHAT = "c1"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
PER_CHUNK = 4


class Clock:
    """A clock that is a second later each time."""

    def __init__(self, start: datetime = START) -> None:
        self.now = start

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def count(text: str) -> int:
    """Words for tokens."""
    return len(text.split())


async def nothing() -> None:
    """Happens while the model thinks, unless a test says otherwise."""


class Told:
    """A summariser: one line per source, in the words of the first message; counts its calls."""

    model = "told"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.meanwhile: Callable[[], Awaitable[None]] = nothing
        self.levels: list[Level] = []
        self.budgets: list[int] = []
        self.shown: list[list[int]] = []
        """Timeline lines of each source of each merge."""

    async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
        rules = tuple(
            Rule(quote=message.text, message_id=message.id, author=message.author)
            for message in messages
            if message.text.startswith("Never")
        )
        first, last = messages[0], messages[-1]
        line = TimelineLine(text=first.text, first_seq=first.seq, last_seq=last.seq)
        return await self._draft(f"chunk {first.seq}-{last.seq}", (line,), level, budget, rules)

    async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
        self.shown.append([len(source.body.timeline) for source in sources])
        lines = tuple(line for source in sources for line in source.body.timeline)
        span = f"{sources[0].span.first_seq}-{sources[-1].span.last_seq}"
        return await self._draft(f"{tier.value} {span}", lines, level, budget)

    async def compress(self, source: Summary, *, level: Level, budget: int) -> Draft:
        return await self._draft("compress", source.body.timeline[-1:], level, budget)

    async def _draft(
        self,
        call: str,
        lines: tuple[TimelineLine, ...],
        level: Level,
        budget: int,
        rules: tuple[Rule, ...] = (),
    ) -> Draft:
        self.calls.append(call)
        self.levels.append(level)
        self.budgets.append(budget)
        await self.meanwhile()
        return Draft(Body(timeline=lines, rules=rules), self.model, "told-1", 100, 10)

    async def close(self) -> None:
        pass


def chunk(index: int, *, generation: int = 0, level: Level = Level.balanced) -> ChunkClosed:
    """The chat's chunk of this index: PER_CHUNK messages."""
    first = index * PER_CHUNK
    last = first + PER_CHUNK - 1
    return ChunkClosed(
        id=ids.chunk_id(CHAT, generation, first, last),
        at=START,
        chat=ChatRef(id=CHAT, surface=Surface.web, characters=("mira",)),
        user_id="u1",
        generation=generation,
        index=index,
        span=Span(
            first_seq=first,
            last_seq=last,
            first_message=f"m{first}",
            last_message=f"m{last}",
            messages=PER_CHUNK,
        ),
        tokens=2_000,
        level=level,
    )


def text_of(seq: int) -> str:
    """What message number `seq` says; the first of each chunk states a rule."""
    return f"Never mention number {seq}." if seq % PER_CHUNK == 0 else f"This is message {seq}."


async def close_chunks(redis: Redis, count: int, *, live: int = 2) -> list[ChunkClosed]:
    """A chat with `count` closed chunks that nothing covers yet, and `live` messages in the window."""
    k = keys.ChatKeys.of(CHAT)
    pending = count * PER_CHUNK
    chunks = [chunk(index) for index in range(count)]
    for seq in range(pending + live):
        role, author = ("user", "u1") if seq % 2 == 0 else ("assistant", "mira")
        at_ms = int(START.timestamp() * 1000) + seq
        message = [f"m{seq}", role, author, text_of(seq), 4, at_ms, f"t{seq // 2}"]
        await redis.hset(k.messages, str(seq), json.dumps(message))
    for closed in chunks:
        await redis.hset(k.chunks, closed.id, closed.model_dump_json(exclude_none=True))
    window: dict[Any, Any] = {
        "g": 0,
        "n": pending + live,
        "v": 7,
        "lf": pending,
        "lm": live,
        "ci": count,
        "lv": Level.balanced.value,
        "cj": chunks[0].chat.model_dump_json(exclude_defaults=True),
        "u": "u1",
        "sm": 0,
    }
    await redis.hset(k.window, mapping=window)
    return chunks


async def in_use(redis: Redis) -> list[Summary]:
    """The chat's summaries in use, oldest first."""
    stored = await redis.hvals(keys.ChatKeys.of(CHAT).summaries)
    return sorted(map(Summary.model_validate_json, stored), key=lambda summary: summary.span.first_seq)


def saved(work: Work) -> list[SummarySaved]:
    """The announcements in a work."""
    return [SummarySaved.model_validate_json(r.value) for r in _of(work, Topics.SUMMARIES)]


def booked(work: Work) -> list[UsageBooked]:
    """The usage in a work."""
    return [UsageBooked.model_validate_json(r.value) for r in _of(work, Topics.USAGE)]


def _of(work: Work, topic: str) -> list[Outgoing]:
    return [record for record in work.publish if record.topic == topic]


async def confirm(work: Work) -> None:
    """What the runtime does once the broker has everything."""
    if work.confirmed is not None:
        await work.confirmed()
