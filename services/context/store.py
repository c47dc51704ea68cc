"""Reads a chat from Redis in one atomic step, one round trip."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from pydantic_core import from_json
from redis.asyncio import Redis

from schemas.chat import DEFAULT_LEVEL, ChatKind, Level
from services.context import rows
from services.context.snapshot import Snapshot, StoredSummary
from services.state.keys import ChatKeys
from services.state.transaction import at_once

_seq = attrgetter("seq")


async def read(redis: Redis, chat: str, *, bodies: bool = True) -> Snapshot | None:
    """The chat as it stands; None where no turn of it was recorded, or it was deleted. Raises redis errors as they are.

    Without `bodies` the data of summaries have of their bodies the rules alone, and no text (services/context/rows.py).
    """
    keys = ChatKeys.of(chat)
    window, numbered, stored, chunks, rollbacks = await at_once(
        redis,
        [
            ("HGETALL", keys.window),
            ("HGETALL", keys.messages),
            ("HVALS", keys.summaries),
            ("HLEN", keys.chunks),
            ("HGETALL", keys.memory_rollbacks),
        ],
    )
    fields = _fields(window)
    if not fields or b"dl" in fields:
        return None
    summaries = [rows.summary(each, body=bodies) for each in stored]
    return _snapshot(chat, fields, _fields(numbered), summaries, chunks, _fields(rollbacks))


async def owner(redis: Redis, chats: Sequence[str]) -> list[str | None]:
    """Who each chat belongs to: a user id, '' where only signed-out users wrote, None for an unknown chat."""
    pipe = redis.pipeline(transaction=False)
    for chat in chats:
        pipe.hget(ChatKeys.of(chat).window, "u")
    return [None if user is None else user.decode() for user in await pipe.execute()]


def _snapshot(
    chat: str,
    window: Mapping[bytes, bytes],
    numbered: Mapping[bytes, bytes],
    summaries: list[StoredSummary],
    chunks: int,
    rollbacks: Mapping[bytes, bytes],
) -> Snapshot:
    def number(field: bytes) -> int:
        return int(window.get(field) or 0)

    messages = rows.messages(numbered)
    border = bisect_left(messages, number(b"lf"), key=_seq)
    summaries.sort(key=lambda summary: (summary.span["first_seq"], summary.span["last_seq"]))
    context = window.get(b"cw")
    ref = from_json(window.get(b"cj", b"{}"))
    return Snapshot(
        chat=chat,
        user=window.get(b"u", b"").decode() or None,
        generation=number(b"g"),
        version=number(b"v"),
        level=Level(window[b"lv"].decode()) if window.get(b"lv") else DEFAULT_LEVEL,
        model=window.get(b"md", b"").decode() or None,
        model_context=int(context) if context else None,
        turns=number(b"tn"),
        messages=number(b"n"),
        summarised=number(b"sm"),
        chunks=int(chunks),
        pending=messages[:border],
        live=messages[border:],
        summaries=summaries,
        characters=tuple(ref.get("characters", ())),
        bounty=ref.get("kind") == ChatKind.bounty,
        rollbacks={id.decode(): value for id, value in rollbacks.items()},
    )


def _fields(answer: Any) -> dict[bytes, bytes]:
    """An answer to HGETALL: a map in RESP3, a flat list in RESP2."""
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))
