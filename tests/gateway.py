"""A gateway for tests: recorded publishing, and chats written by the same code that writes them in production."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import jwt
from fastapi import FastAPI
from redis.asyncio import Redis

from schemas.chat import Level
from schemas.chunks import ChunkClosed
from schemas.delivery import Outgoing, Position, Topics
from schemas.memories import MEMORY_COMMAND
from schemas.summaries import Body, Provenance, Rule, Summary, Tier, TimelineLine
from schemas.turns import TURN_EVENT
from services.gateway.app import create_app
from services.gateway.auth import Authenticator
from services.gateway.ports import Deps
from services.memories.service import Delivered as DeliveredCommand
from services.memories.service import Memories
from services.summaries import store
from services.summaries.editing import Editing
from services.summaries.render import render
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work

SERVICE = "service-token-of-the-tests"
SECRET = "a-secret-of-the-tests-with-32-bytes-or-more"
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def words(text: str) -> int:
    """A token counter that a test can count along with."""
    return len(text.split())


def bearer(token: str = SERVICE) -> dict[str, str]:
    """The header."""
    return {"Authorization": f"Bearer {token}"}


def user_token(user: str, **claims: Any) -> str:
    """A user token that lasts an hour."""
    return jwt.encode({"sub": user, "exp": int(time.time()) + 3600, **claims}, SECRET, "HS256")


@dataclass
class Recorder:
    """A publisher that keeps what it is given, or fails."""

    records: list[Outgoing] = field(default_factory=list)
    error: Exception | None = None

    async def publish(self, records: Sequence[Outgoing]) -> None:
        """Confirmed at once."""
        if self.error is not None:
            raise self.error
        self.records += records


@dataclass
class Applying(Recorder):
    """A publisher beside which the memories agent runs: what is published to it is carried out at once.

    `redis` None: it is not running, and the commands wait in `records`.
    """

    redis: Redis | None = None

    async def publish(self, records: Sequence[Outgoing]) -> None:
        """Confirmed, and carried out."""
        await super().publish(records)
        if self.redis is not None:
            await self.carry_out(self.redis)

    async def carry_out(self, redis: Redis) -> None:
        """All commands so far; those that were carried out before change nothing."""
        commands = [record for record in self.records if record.topic == Topics.MEMORY_COMMANDS]
        delivered = [
            DeliveredCommand(MEMORY_COMMAND.validate_json(record.value), Position("log", 0, offset), 0)
            for offset, record in enumerate(commands)
        ]
        for result in await Memories(redis, words, lambda: NOW).apply(delivered):
            assert isinstance(result, Work), result
            if result.confirmed is not None:
                await result.confirmed()


@asynccontextmanager
async def started(app: FastAPI, token: str = SERVICE) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app whose live channels are open."""
    async with app.router.lifespan_context(app), client(app, token) as http:
        yield http


def deps(redis: Redis, recorder: Recorder, **changes: Any) -> Deps:
    """Everything a gateway needs."""
    values: dict[str, Any] = {
        "redis": redis,
        "publisher": recorder,
        "summaries": Editing(redis, words, lambda: NOW),
        "authenticator": Authenticator([SERVICE], SECRET),
        "clock": lambda: NOW,
        "counter": lambda: words,
        **changes,
    }
    return Deps(**values)


def client(app: FastAPI, token: str = SERVICE) -> httpx.AsyncClient:
    """Calls the app without a socket."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app, raise_app_exceptions=False),
        base_url="http://gateway",
        headers=bearer(token),
    )


def app_on(redis: Redis, recorder: Recorder, **changes: Any) -> FastAPI:
    """The app on these."""
    return create_app(deps(redis, recorder, **changes))


def turn(
    number: int, *, chat: str = "c1", user: str | None = "u1", size: int = 5, **more: Any
) -> dict[str, Any]:
    """A turn of two messages of `size` words each, one minute after the one before."""
    return {
        "type": "turn.recorded",
        "id": f"{chat}-e{number}",
        "at": (NOW - timedelta(minutes=1000 - number)).isoformat(),
        "chat": {"id": chat, "surface": "web"},
        "user": {"id": user} if user else None,
        "turn": {"id": f"t{number}"},
        "messages": [
            {
                "id": f"m{2 * number}",
                "role": "user",
                "author": user or "",
                "text": f"q{number} " + "a " * (size - 1),
            },
            {"id": f"m{2 * number + 1}", "role": "assistant", "author": "mira", "text": "ok " * size},
        ],
        **more,
    }


async def play(redis: Redis, turns: Sequence[dict[str, Any]], *, first_offset: int = 0) -> list[ChunkClosed]:
    """Record turns as the window agent does. Returns the chunks that closed."""
    window = Window(redis, words, ChunkSize())
    delivered = [
        Delivered(TURN_EVENT.validate_python(event), Position("log", 0, first_offset + at), 0)
        for at, event in enumerate(turns)
    ]
    chunks = {}
    for result in await window.apply(delivered):
        assert isinstance(result, Work), result
        for record in result.publish:
            if record.topic == Topics.CHUNKS:
                chunk = ChunkClosed.model_validate_json(record.value)
                chunks[chunk.id] = chunk
        if result.confirmed is not None:
            await result.confirmed()
    return sorted(chunks.values(), key=lambda chunk: chunk.index)


def summary(
    chunk: ChunkClosed, *, tokens: int | None = None, rules: Sequence[str] = (), filler: int = 8
) -> Summary:
    """A recent summary of a chunk."""
    body = Body(
        timeline=(
            TimelineLine(
                text=f"s{chunk.index} " + "x " * filler,
                first_seq=chunk.span.first_seq,
                last_seq=chunk.span.last_seq,
            ),
        ),
        rules=tuple(Rule(quote=quote, message_id=chunk.span.first_message, author="u1") for quote in rules),
    )
    text = render(body)
    return Summary(
        id=chunk.id,
        chat_id=chunk.chat.id,
        tier=Tier.recent,
        generation=chunk.generation,
        span=chunk.span,
        body=body,
        text=text,
        tokens=words(text) if tokens is None else tokens,
        provenance=Provenance(
            model="extractive", prompt_version="1", level=Level.balanced, chunk_ids=(chunk.id,)
        ),
        created_at=NOW,
    )


async def summarise(redis: Redis, chunk: ChunkClosed, **how: Any) -> Summary:
    """Save a chunk's summary as the summarise agent does."""
    found = await store.read_chunk(redis, chunk)
    assert found is not None
    made = summary(chunk, **how)
    assert await store.save_recent(redis, chunk, made, found.archive, {})
    return made
