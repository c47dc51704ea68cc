"""Reads a chat from Redis in one atomic step, one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json
from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from schemas.chat import DEFAULT_LEVEL, Level
from schemas.summaries import Tier
from services.context.snapshot import Snapshot, StoredMessage, StoredSummary
from services.state.keys import ChatKeys
from services.state.scripts import Script

_SNAPSHOT = Script("services.context", "snapshot.lua")


async def read(redis: Redis, chat: str) -> Snapshot | None:
    """The chat as it stands; None where no turn of it was recorded. Raises redis errors as they are."""
    keys = ChatKeys.of(chat)
    names = (keys.window, keys.messages, keys.summaries, keys.chunks)
    try:
        reply = await redis.evalsha(_SNAPSHOT.sha, len(names), *names)
    except NoScriptError:
        reply = await redis.eval(_SNAPSHOT.text, len(names), *names)
    return _snapshot(chat, reply) if reply else None


async def owner(redis: Redis, chats: Sequence[str]) -> list[str | None]:
    """Who each chat belongs to: a user id, '' where only signed-out users wrote, None for an unknown chat."""
    pipe = redis.pipeline(transaction=False)
    for chat in chats:
        pipe.hget(ChatKeys.of(chat).window, "u")
    return [None if user is None else user.decode() for user in await pipe.execute()]


def _snapshot(chat: str, reply: Sequence[Any]) -> Snapshot:
    window, numbered, stored, chunks = reply
    state: dict[bytes, bytes] = dict(zip(window[::2], window[1::2], strict=True))

    def number(field: bytes) -> int:
        return int(state.get(field) or 0)

    # one JSON array parses faster than many small ones
    rows = from_json(b"[" + b",".join(numbered[1::2]) + b"]")
    messages = [StoredMessage(int(seq), *row) for seq, row in zip(numbered[::2], rows, strict=True)]
    messages.sort()
    first_live = number(b"lf")
    border = next((at for at, message in enumerate(messages) if message.seq >= first_live), len(messages))
    summaries = [
        StoredSummary(item["id"], Tier(item["tier"]), item["text"], item["tokens"], item["version"], item)
        for item in from_json(b"[" + b",".join(stored) + b"]")
    ]
    summaries.sort(key=lambda summary: (summary.span["first_seq"], summary.span["last_seq"]))
    context = state.get(b"cw")
    return Snapshot(
        chat=chat,
        user=state.get(b"u", b"").decode() or None,
        generation=number(b"g"),
        version=number(b"v"),
        level=Level(state[b"lv"].decode()) if state.get(b"lv") else DEFAULT_LEVEL,
        model=state.get(b"md", b"").decode() or None,
        model_context=int(context) if context else None,
        turns=number(b"tn"),
        messages=number(b"n"),
        summarised=number(b"sm"),
        chunks=int(chunks),
        pending=messages[:border],
        live=messages[border:],
        summaries=summaries,
    )
