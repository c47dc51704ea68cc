"""Turns for the tests of the window, and the window as it lies in Redis."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from redis.asyncio import Redis

from schemas.chunks import ChunkClosed
from schemas.delivery import Outgoing, Position, Topics
from schemas.turns import TURN_EVENT
from schemas.usage import UsageBooked
from services.failures import Poison
from services.state import ids, keys
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work

EPOCH = "log-1"

SMALL = ChunkSize(4, 1_000)
"""Two turns of two messages make a chunk."""

KEY_EVENTS: dict[str, Any] = {"memory": {"level": "key_events"}}
"""30 messages at most."""


def characters(text: str) -> int:
    """One token a character."""
    return len(text)


def window(redis: Redis, chunk: ChunkSize | None = None) -> Window:
    """The service, counting characters."""
    return Window(redis, characters, chunk or ChunkSize())


def delivered(
    turn: int | str,
    offset: int,
    texts: Sequence[str] = ("hello", "hi"),
    *,
    epoch: str = EPOCH,
    partition: int = 0,
    event: str | None = None,
    messages: Sequence[str] | None = None,
    chat: dict[str, Any] | str = "c1",
    **fields: Any,
) -> Delivered:
    """A recorded turn `t<turn>` of chat c1 with messages `m<turn>.0`, ... as read at `offset`."""
    body = {
        "type": "turn.recorded",
        "id": event or f"e{turn}",
        "chat": {"id": chat} if isinstance(chat, str) else chat,
        "turn": {"id": f"t{turn}"},
        "messages": [
            {
                "id": messages[n] if messages else f"m{turn}.{n}",
                "role": "assistant" if n % 2 else "user",
                "text": text,
            }
            for n, text in enumerate(texts)
        ],
        **fields,
    }
    timestamp = 1_790_000_000_000 + offset
    return Delivered(TURN_EVENT.validate_python(body), Position(epoch, partition, offset), timestamp)


def over(count: int, start: int = 0, **fields: Any) -> list[Delivered]:
    """`count` turns of two messages, at offsets from `start`."""
    return [delivered(n, n, **fields) for n in range(start, start + count)]


async def good(redis: Redis, event: Delivered, chunk: ChunkSize = SMALL) -> Work:
    """Apply one event that is not poison."""
    [work] = works(await window(redis, chunk).apply([event]))
    return work


async def poison(redis: Redis, event: Delivered) -> str:
    """Apply one event that is poison and changes nothing but the watermark; the reason."""
    before = await read(redis)
    [result] = await window(redis, SMALL).apply([event])
    assert isinstance(result, Poison)
    after = await read(redis)
    watermark = {name: after.fields[name] for name in ("ep", "pa", "of")}
    assert after == replace(before, fields=before.fields | watermark)
    return str(result)


def works(results: Sequence[Work | Poison]) -> list[Work]:
    """The results, none of which is poison."""
    assert not [result for result in results if isinstance(result, Poison)], results
    return [result for result in results if isinstance(result, Work)]


def chunks_of(published: Sequence[Outgoing]) -> list[ChunkClosed]:
    """Closed chunks among what is to be published, by index; the keys are right."""
    found = [
        ChunkClosed.model_validate_json(record.value) for record in published if record.topic == Topics.CHUNKS
    ]
    assert all(
        record.key.decode() == chunk_chat(record) for record in published if record.topic == Topics.CHUNKS
    )
    return sorted(found, key=lambda chunk: chunk.index)


def chunk_chat(record: Outgoing) -> str:
    """The chat that a chunk's record is about."""
    return ChunkClosed.model_validate_json(record.value).chat.id


def usage_of(published: Sequence[Outgoing]) -> list[UsageBooked]:
    """Usage among what is to be published."""
    return [
        UsageBooked.model_validate_json(record.value) for record in published if record.topic == Topics.USAGE
    ]


@dataclass(frozen=True)
class State:
    """A chat's window as it lies in Redis. Turns are (first message number, messages, tokens)."""

    fields: dict[str, str]
    live: list[tuple[int, int, int]]
    pending: list[tuple[int, int, int]]
    chunks: list[ChunkClosed]
    messages: dict[int, list[Any]]
    outbox: set[str]

    def number(self, field: str) -> int:
        """A counter of the window's hash."""
        return int(self.fields.get(field, 0))


async def read(redis: Redis, chat: str = "c1") -> State:
    """Everything that the window keeps of a chat."""
    k = keys.ChatKeys.of(chat)

    def turns(items: list[bytes]) -> list[tuple[int, int, int]]:
        found = []
        for item in items:
            first, count, tokens, *_ = item.decode().split(" ")
            found.append((int(first), int(count), int(tokens)))
        return found

    pipe = redis.pipeline()
    pipe.hgetall(k.window)
    pipe.lrange(k.live, 0, -1)
    pipe.lrange(k.pending, 0, -1)
    for key in (k.chunks, k.messages, keys.outbox(chat, "window")):
        pipe.hgetall(key)
    fields, live, pending, closed, messages, outbox = await pipe.execute()
    return State(
        {name.decode(): value.decode() for name, value in fields.items()},
        turns(live),
        turns(pending),
        sorted(map(ChunkClosed.model_validate_json, closed.values()), key=lambda chunk: chunk.index),
        {int(seq): json.loads(value) for seq, value in messages.items()},
        {field.decode() for field in outbox},
    )


def check(state: State) -> None:
    """Every message is in exactly one of chunks, pending and live, in order, and the counters say the same."""
    seq = 0
    for index, chunk in enumerate(state.chunks):
        span = chunk.span
        assert chunk.index == index
        assert chunk.id == ids.chunk_id(chunk.chat.id, chunk.generation, span.first_seq, span.last_seq)
        assert span.first_seq == seq
        assert span.messages == span.last_seq - span.first_seq + 1
        inside = range(span.first_seq, span.last_seq + 1)
        assert chunk.tokens == sum(state.messages[n][4] for n in inside)
        assert (span.first_message, span.last_message) == (
            state.messages[span.first_seq][0],
            state.messages[span.last_seq][0],
        )
        seq = span.last_seq + 1
    assert state.number("ci") == len(state.chunks)
    for name, turns in (("p", state.pending), ("l", state.live)):
        assert state.number("pf" if name == "p" else "lf") == seq
        for first, count, tokens in turns:
            assert first == seq
            assert tokens == sum(state.messages[n][4] for n in range(first, first + count))
            seq += count
        assert state.number(f"{name}m") == sum(turn[1] for turn in turns)
        assert state.number(f"{name}t") == sum(turn[2] for turn in turns)
    assert state.number("n") == seq
    assert sorted(state.messages) == list(range(seq))
