"""Summaries in Redis. Every function raises redis.RedisError where the store is away.

What is written goes through one script per change, so that a summary, the outbox and the counters change together;
what is read together is read in one transaction.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from pydantic_core import from_json
from redis.asyncio import Redis

from schemas.chat import DEFAULT_LEVEL, ChatRef, Level
from schemas.chunks import ChunkClosed
from schemas.live import SummaryChanged
from schemas.summaries import Summary, Tier
from schemas.turns import Role
from services.failures import Poison
from services.state import keys, outbox
from services.state.agents import MERGE, SUMMARISE
from services.state.scripts import Script
from services.summaries import policy
from services.summaries.errors import Conflict, MergedAway, NotFound
from services.summaries.port import SourceMessage
from services.work import Work

_SAVE_RECENT = Script("services.summaries", "save_recent.lua")
_SAVE_MERGED = Script("services.summaries", "save_merged.lua")
_EDIT = Script("services.summaries", "edit.lua")

Entries = Mapping[str, str]
"""Outbox field -> value (services.state.outbox.entry)."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A pending chunk's messages. `archive` are the same, compressed, as they are kept for recall."""

    messages: tuple[SourceMessage, ...]
    archive: bytes


@dataclass(frozen=True, slots=True)
class State:
    """A chat's summaries in use, oldest first, and what a merge needs to know of the chat, read at one moment."""

    generation: int
    level: Level
    chat: ChatRef
    user_id: str | None
    summaries: tuple[Summary, ...]


async def read_chunk(redis: Redis, chunk: ChunkClosed) -> Chunk | None:
    """The chunk's messages; None where it has a summary already or was taken back.

    Raises Poison where the chunk is pending and messages of it are missing: the state is damaged, waiting will
    not bring them back. The chunk stays in `:k`, where `afterturn audit` finds it.
    """
    k, span = keys.ChatKeys.of(chunk.chat.id), chunk.span
    numbers = range(span.first_seq, span.last_seq + 1)
    async with redis.pipeline(transaction=True) as pipe:
        pipe.hexists(k.chunks, chunk.id)
        pipe.hexists(k.summaries, chunk.id)
        pipe.hexists(k.archived_summaries, chunk.id)
        pipe.hmget(k.messages, list(map(str, numbers)))
        pending, in_use, archived, stored = await pipe.execute()
    # a chunk is named after its generation and its messages: one that was taken back is not pending any more
    if in_use or archived or not pending:
        return None
    rows = [[seq, *json.loads(raw)] for seq, raw in zip(numbers, stored, strict=True) if raw is not None]
    if len(rows) != span.messages:
        raise Poison(
            f"span.messages: {span.messages - len(rows)} of the {span.messages} messages of pending chunk {chunk.id} "
            "are missing in Redis; the state of this chat is damaged"
        )
    # the archive repeats the messages' own JSON: [seq, id, role, author, text, tokens, at_ms, turn_id], and 1 behind
    # it for one that was deleted
    archive = zlib.compress(json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode())
    return Chunk(tuple(_message(*row[:7]) for row in rows if len(row) == 8), archive)


def _message(seq: int, id: str, role: str, author: str, text: str, tokens: int, at_ms: int) -> SourceMessage:
    at = datetime.fromtimestamp(at_ms / 1000, UTC)
    return SourceMessage(seq, id, Role(role), author, text, tokens, at)


async def read_state(redis: Redis, chat: str, *, due: bool = False) -> State | None:
    """All summaries in use, at one moment; None for a chat that Redis does not know.

    `due`: only where a merge may be due, else none of them. Most saved summaries lead to no merge, and validating all
    that a chat has takes several times as long as finding that out.
    """
    k = keys.ChatKeys.of(chat)
    async with redis.pipeline(transaction=True) as pipe:
        pipe.hmget(k.window, ["g", "lv", "cj", "u"])
        pipe.hvals(k.summaries)
        (generation, level, ref, user), stored = await pipe.execute()
    if ref is None:
        return None
    if due and policy.idle(_heads(stored)):
        stored = []
    summaries = sorted(map(Summary.model_validate_json, stored), key=lambda summary: summary.span.first_seq)
    return State(
        generation=int(generation or 0),
        level=Level(level.decode()) if level else DEFAULT_LEVEL,
        chat=ChatRef.model_validate_json(ref),
        user_id=user.decode() if user else None,
        summaries=tuple(summaries),
    )


def _heads(stored: Sequence[bytes]) -> list[policy.Head]:
    parsed = from_json(b"[" + b",".join(stored) + b"]", cache_strings="keys")
    return [
        policy.Head(Tier(each["tier"]), each["tokens"], Level(each["provenance"]["level"])) for each in parsed
    ]


async def read_one(redis: Redis, chat: str, summary_id: str) -> Summary:
    """A summary in use. Raises NotFound or MergedAway."""
    k = keys.ChatKeys.of(chat)
    async with redis.pipeline(transaction=True) as pipe:
        pipe.hget(k.summaries, summary_id)
        pipe.hexists(k.archived_summaries, summary_id)
        raw, archived = await pipe.execute()
    if raw is None:
        raise _gone(summary_id, bool(archived))
    return Summary.model_validate_json(raw)


async def save_recent(
    redis: Redis, chunk: ChunkClosed, summary: Summary, archive: bytes, entries: Entries
) -> bool:
    """Save a chunk's summary. False where another writer has saved it, or the chunk was taken back meanwhile."""
    k, chat = keys.ChatKeys.of(chunk.chat.id), chunk.chat.id
    status = await _SAVE_RECENT.run(
        redis,
        (
            k.window,
            k.messages,
            k.chunks,
            k.summaries,
            k.archived_summaries,
            k.archive,
            k.archive_order,
            keys.outbox(chat, SUMMARISE),
        ),
        [
            keys.channel(chat),
            chunk.id,
            chunk.index,
            summary.model_dump_json(exclude_none=True),
            archive,
            chunk.span.messages,
            _hint(summary),
            chunk.span.first_seq,
            chunk.span.last_seq,
            *_flat(entries),
        ],
    )
    return bool(status == b"saved")


async def save_merged(
    redis: Redis, state: State, sources: Sequence[Summary], summary: Summary, entries: Entries
) -> bool:
    """Put `summary` in the place of `sources`, which are archived. False where one of them is not what was read.

    A source goes to the archive under its id; a summary that replaces its own earlier version (a compression)
    leaves that version there as `<id>@<version>`.
    """
    chat = state.chat.id
    k = keys.ChatKeys.of(chat)
    arguments: list[Any] = [
        keys.channel(chat),
        state.generation,
        summary.id,
        summary.model_dump_json(exclude_none=True),
        _hint(summary),
        len(sources),
    ]
    for source in sources:
        arguments += (source.id, source.version, archive_name(source, summary.id))
    status = await _SAVE_MERGED.run(
        redis,
        (k.window, k.summaries, k.archived_summaries, keys.outbox(chat, MERGE)),
        [*arguments, *_flat(entries)],
    )
    return bool(status == b"saved")


def archive_name(source: Summary, successor: str) -> str:
    """The field of `:sa` that keeps `source`."""
    return f"{source.id}@{source.version}" if source.id == successor else source.id


async def save_edit(redis: Redis, summary: Summary, expected_version: int, entries: Entries) -> None:
    """Replace a summary in use by its edited version. Raises NotFound, MergedAway or Conflict."""
    chat = summary.chat_id
    k = keys.ChatKeys.of(chat)
    status, *detail = await _EDIT.run(
        redis,
        (k.window, k.summaries, k.archived_summaries, keys.outbox(chat, MERGE)),
        [
            keys.channel(chat),
            summary.id,
            expected_version,
            summary.model_dump_json(exclude_none=True),
            _hint(summary),
            *_flat(entries),
        ],
    )
    if status == b"conflict":
        raise Conflict(int(detail[0]))
    if status != b"saved":
        raise _gone(summary.id, status == b"merged")


async def note(redis: Redis, chat: str, agent: str, entries: Entries) -> None:
    """Put something into the outbox that belongs to no change of the state: it goes out with the next event."""
    await redis.hset(keys.outbox(chat, agent), mapping=cast("Any", dict(entries)))


async def work(redis: Redis, chat: str, agent: str, *, repeated: bool) -> Work:
    """Everything that the outbox holds, to publish; confirmed, it is trimmed."""
    held = await outbox.read(redis, chat, agent)
    fields = sorted(held)
    if not fields:
        return Work(repeated=repeated)

    async def trim() -> None:
        await outbox.trim(redis, chat, agent, fields)

    return Work(outbox.outgoing(held[field] for field in fields), trim, repeated)


def _hint(summary: Summary) -> str:
    return SummaryChanged(summary_id=summary.id, tier=summary.tier, version=summary.version).model_dump_json()


def _flat(entries: Entries) -> list[str]:
    return [part for pair in entries.items() for part in pair]


def _gone(summary_id: str, archived: bool) -> NotFound:
    if archived:
        return MergedAway(f"id: summary {summary_id} has been merged into another one")
    return NotFound(f"id: this chat has no summary {summary_id}")
