"""Reads a chat from Redis in one atomic step, one round trip."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import from_json
from redis.asyncio import Redis

from schemas.chat import DEFAULT_LEVEL, Level
from schemas.summaries import Tier
from services.context.snapshot import Snapshot, StoredMessage, StoredSummary
from services.state.keys import ChatKeys
from services.state.transaction import at_once

_BODY, _RULES = b'"body":{', b'"rules":['


async def read(redis: Redis, chat: str, *, bodies: bool = True) -> Snapshot | None:
    """The chat as it stands; None where no turn of it was recorded. Raises redis errors as they are.

    Without `bodies` the summaries' bodies have their rules alone: all that a context can need of them, and half the
    work of reading a summary.
    """
    keys = ChatKeys.of(chat)
    window, numbered, stored, chunks = await at_once(
        redis,
        [
            ("HGETALL", keys.window),
            ("HGETALL", keys.messages),
            ("HVALS", keys.summaries),
            ("HLEN", keys.chunks),
        ],
    )
    if not window:
        return None
    summaries = stored if bodies else map(rules_alone, stored)
    return _snapshot(chat, _fields(window), _fields(numbered), summaries, chunks)


def rules_alone(summary: bytes) -> bytes:
    """A stored summary whose body is cut down to its rules, still JSON.

    In JSON a quotation mark inside a string has a backslash before it, so these bytes can only be the keys. Where
    they are not as `model_dump_json` writes them, the summary stays whole.
    """
    start, end = summary.find(_BODY) + len(_BODY), summary.find(_RULES)
    return summary[:start] + summary[end:] if len(_BODY) <= start <= end else summary


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
    stored: Iterable[bytes],
    chunks: int,
) -> Snapshot:
    def number(field: bytes) -> int:
        return int(window.get(field) or 0)

    fields = sorted(numbered, key=int)
    numbers = [*map(int, fields)]
    rows = _parse(map(numbered.__getitem__, fields))
    messages = [StoredMessage._make((seq, *row)) for seq, row in zip(numbers, rows, strict=True)]
    border = bisect_left(numbers, number(b"lf"))
    summaries = [
        StoredSummary(item["id"], Tier(item["tier"]), item["text"], item["tokens"], item["version"], item)
        for item in _parse(stored)
    ]
    summaries.sort(key=lambda summary: (summary.span["first_seq"], summary.span["last_seq"]))
    context = window.get(b"cw")
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
    )


def _fields(answer: Any) -> dict[bytes, bytes]:
    """An answer to HGETALL: a map in RESP3, a flat list in RESP2."""
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))


def _parse(values: Iterable[bytes]) -> list[Any]:
    # one JSON array parses faster than many small ones; hardly a string is in another chat as well
    parsed: list[Any] = from_json(b"[" + b",".join(values) + b"]", cache_strings="keys")
    return parsed
