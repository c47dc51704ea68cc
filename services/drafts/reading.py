"""Reads chosen messages of a chat, wherever they are: live, pending, or archived under a summary.

Archived chunks follow each other without a gap, so the one that has a message is found by halving: of a chat with a
thousand chunks about ten are opened for one message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, cast

from redis.asyncio import Redis

from schemas.chat import ChatRef
from schemas.turns import Role
from services.state.keys import ChatKeys
from services.state.transaction import at_once
from services.summaries.port import SourceMessage
from services.takeback.values import Row, row, unpack

_ATTEMPTS = 3


class Chat(NamedTuple):
    """Whose chat it is (`owner` '' for somebody signed out), and what it is."""

    owner: str
    ref: ChatRef


async def chat(redis: Redis, chat: str) -> Chat | None:
    """Of a chat; None for an unknown one."""
    window = ChatKeys.of(chat).window
    owner, ref = cast("list[bytes | None]", await redis.hmget(window, ["u", "cj"]))
    if owner is None and ref is None:
        return None
    return Chat((owner or b"").decode(), ChatRef.model_validate_json(ref) if ref else ChatRef(id=chat))


async def messages(redis: Redis, chat: str, ids: Sequence[str]) -> list[SourceMessage]:
    """Those of the messages that the chat has, in its order. Raises redis errors as they are."""
    found: dict[int, Row] = {}
    for _ in range(_ATTEMPTS):
        numbers, found = await _attempt(redis, chat, ids)
        if len(found) == len(numbers):
            break
        # one was moved, from the window to the archive or back, between two looks
    return [_message(seq, found[seq]) for seq in sorted(found) if not found[seq].deleted]


async def _attempt(redis: Redis, chat: str, ids: Sequence[str]) -> tuple[set[int], dict[int, Row]]:
    """Numbers of those that the chat has, and what was found of them."""
    keys = ChatKeys.of(chat)
    places = await redis.hmget(keys.message_ids, list(ids))
    numbers = {int(place) for place in places if place is not None}
    if not numbers:
        return numbers, {}
    ordered = sorted(numbers)
    held, chunks = await at_once(
        redis, [("HMGET", keys.messages, *ordered), ("LRANGE", keys.archive_order, 0, -1)]
    )
    found = {seq: row(raw) for seq, raw in zip(ordered, held, strict=True) if raw is not None}
    opened: dict[bytes, Mapping[int, Row]] = {}
    order = [chunk for chunk in chunks if chunk]
    for seq in numbers - found.keys():
        archived = await _archived(redis, keys.archive, order, seq, opened)
        if archived is not None:
            found[seq] = archived
    return numbers, found


async def _archived(
    redis: Redis, key: str, order: Sequence[bytes], seq: int, opened: dict[bytes, Mapping[int, Row]]
) -> Row | None:
    first, last = 0, len(order) - 1
    while first <= last:
        middle = (first + last) // 2
        chunk = order[middle]
        if chunk not in opened:
            blob = cast("bytes | None", await redis.hget(key, cast("str", chunk)))
            if blob is None:
                return None
            opened[chunk] = unpack(blob)
        rows = opened[chunk]
        if seq in rows:
            return rows[seq]
        if seq < min(rows):
            last = middle - 1
        else:
            first = middle + 1
    return None


def _message(seq: int, row: Row) -> SourceMessage:
    at = datetime.fromtimestamp(row.at / 1000, UTC)
    return SourceMessage(seq, row.id, Role(row.role), row.author, row.text, row.tokens, at)


def missing(ids: Iterable[str], found: Iterable[SourceMessage]) -> list[str]:
    """Ids that the chat does not have."""
    there = {message.id for message in found}
    return [id for id in ids if id not in there]
