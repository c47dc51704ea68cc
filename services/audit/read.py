"""Reads chats for the audit: each at one moment, one after the other, archived messages page by page.

Raises redis.RedisError where the store is away. What cannot be understood becomes a finding, never an exception.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from itertools import islice

from redis.asyncio import Redis

from schemas.chunks import ChunkClosed
from schemas.memories import MemoryRollback
from schemas.summaries import Summary
from services.audit.parsing import UNREADABLE, Parsing, text
from services.audit.report import Check, Finding
from services.audit.snapshot import ArchivedMessage, Held, Snapshot, Turn, TurnEntry, print_of
from services.state import agents, keys
from services.state.deleted import MARK

PAGE = 16
"""Archived chunks in one answer: at most about 16 MiB, usually some tens of KiB."""

ASKED = 1_000
"""Turns that are looked up in one round trip."""


async def chats(redis: Redis) -> AsyncIterator[str]:
    """Every chat. One that is there all the time comes at least once, and twice at worst, as Redis promises of SCAN."""
    async for key in redis.scan_iter(match=keys.WINDOW_PATTERN, count=1_000, _type="HASH"):
        yield keys.chat_of(key.decode())


async def snapshot(redis: Redis, chat: str) -> tuple[Snapshot, list[Finding]] | None:
    """The chat at one moment (one transaction), and what of it cannot be understood; None for an unknown chat."""
    k = keys.ChatKeys.of(chat)
    async with redis.pipeline(transaction=True) as pipe:
        pipe.hgetall(k.window)
        pipe.hgetall(k.messages)
        pipe.lrange(k.live, 0, -1)
        pipe.lrange(k.pending, 0, -1)
        pipe.hgetall(k.turns)
        pipe.hgetall(k.message_ids)
        pipe.hgetall(k.chunks)
        pipe.hgetall(k.summaries)
        pipe.hgetall(k.archived_summaries)
        pipe.hkeys(k.archive)
        pipe.lrange(k.archive_order, 0, -1)
        pipe.lrange(k.turn_order, 0, -1)
        pipe.hkeys(k.memory_users)
        pipe.hgetall(k.memory_rollbacks)
        for agent in agents.OF_CHATS:
            pipe.hlen(keys.outbox(chat, agent))
        answers = await pipe.execute()
    window, messages, live, pending, turns, ids, chunks, summaries, merged_away, archive, order = answers[:11]
    turn_order, memory_turns, rollbacks = answers[11:14]
    if not window:
        return None
    parsing = Parsing(chat=chat)
    return (
        Snapshot(
            chat=chat,
            fields={text(field): text(value) for field, value in window.items()},
            messages=parsing.table("m", messages, int, _held),
            live=parsing.items("l", live, _turn),
            pending=parsing.items("p", pending, _turn),
            turns=parsing.table("t", turns, str, _entry),
            numbers=parsing.table("i", ids, str, int),
            chunks=tuple(parsing.table("k", chunks, str, ChunkClosed.model_validate_json).values()),
            summaries=tuple(parsing.table("s", summaries, str, Summary.model_validate_json).values()),
            merged_away=parsing.table("sa", merged_away, str, Summary.model_validate_json),
            archive=frozenset(map(text, archive)),
            order=tuple(map(text, order)),
            turn_order=tuple(map(text, turn_order)),
            memory_turns=frozenset(map(text, memory_turns)),
            rollbacks=parsing.table("mr", rollbacks, str, MemoryRollback.model_validate_json),
            outboxes=dict(zip(agents.OF_CHATS, answers[14:], strict=True)),
        ),
        parsing.findings,
    )


async def remains(redis: Redis, chat: str) -> list[str]:
    """The keys of a chat that are there, without its window and its outboxes."""
    others = keys.ChatKeys.of(chat)[1:]
    async with redis.pipeline(transaction=True) as pipe:
        for key in others:
            pipe.exists(key)
        found = await pipe.execute()
    return [key for key, there in zip(others, found, strict=True) if there]


async def gone_turns(redis: Redis, turns: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Those of these turns (chat, turn id) that their chat does not have any more. An unknown or a deleted chat's count
    as there."""
    gone = []
    for start in range(0, len(turns), ASKED):
        page = turns[start : start + ASKED]
        async with redis.pipeline(transaction=False) as pipe:
            for chat, turn in page:
                k = keys.ChatKeys.of(chat)
                pipe.hmget(k.window, ["v", MARK])
                pipe.hexists(k.turns, turn)
            answers = await pipe.execute()
        gone += [
            place
            for place, (version, mark), there in zip(page, answers[::2], answers[1::2], strict=True)
            if version is not None and mark is None and not there
        ]
    return gone


async def archived(
    redis: Redis, chat: str, chunk_ids: Iterable[str]
) -> AsyncIterator[tuple[str, Sequence[ArchivedMessage] | Finding | None]]:
    """Chunk id and its messages, page by page; None where nothing is archived, a finding where it is unreadable."""
    key = keys.ChatKeys.of(chat).archive
    ids = iter(chunk_ids)
    while page := list(islice(ids, PAGE)):
        for id, blob in zip(page, await redis.hmget(key, page), strict=True):
            try:
                yield id, None if blob is None else tuple(_archived(blob))
            except UNREADABLE as error:
                detail = f"a: the archive of chunk {id} ({type(error).__name__})"
                yield id, Finding(chat, Check.readable, detail)


def _archived(blob: bytes | str) -> Iterator[ArchivedMessage]:
    for seq, id, _, _, said, _, _, turn, *deleted in json.loads(
        zlib.decompress(blob if isinstance(blob, bytes) else blob.encode())
    ):
        yield ArchivedMessage(int(seq), str(id), str(said), str(turn), bool(deleted))


def _held(raw: bytes) -> Held:
    id, _, _, said, tokens, _, turn, *deleted = json.loads(raw)
    return Held(str(id), int(tokens), str(turn), print_of(str(said)), bool(deleted))


def _turn(raw: bytes) -> Turn:
    first, count, tokens, _, first_id, last_id = raw.decode().split(" ")
    return Turn(int(first), int(count), int(tokens), first_id, last_id)


def _entry(raw: bytes) -> TurnEntry:
    _, first, count, _, *messages = raw.decode().split(" ")
    return TurnEntry(int(first), int(count), tuple(messages))
