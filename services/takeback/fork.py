"""A fork: another chat that begins as this one was at a turn (W8). Planned on a copy of the source's keys.

Turns, messages, summaries and archives keep their ids and numbers; what names a chat names the new one. A summary says
in its provenance in which chat it was made, and paid for. Chunks that no summary covers yet are the new chat's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_core import from_json, to_json

from schemas.chat import ChatRef
from schemas.chunks import ChunkClosed
from schemas.delivery import Topics
from schemas.summaries import Summary
from schemas.turns import ChatForked
from services.failures import Poison
from services.state import ids, keys, outbox
from services.state.agents import WINDOW as AGENT
from services.state.keys import ChatKeys
from services.summaries import announce
from services.summaries.policy import Head, idle
from services.takeback import policy, reading
from services.takeback.changes import Changes
from services.takeback.memory import Copy
from services.takeback.policy import Plan
from services.takeback.reading import Ask, table

_HASHES = (
    "window",
    "messages",
    "turns",
    "message_ids",
    "chunks",
    "summaries",
    "archived_summaries",
    "archive",
)
_LISTS = ("live", "pending", "archive_order", "turn_order")


FORK_BYTES = 64 * 1024 * 1024
"""Most that a chat may have in Redis to be forked: it is read in one answer and written by one script, which nothing else
runs beside. About 100,000 messages of usual length."""


async def copy(ask: Ask, source: str) -> Copy:
    """All that a fork takes over, read at one moment; empty for an unknown chat. Raises Poison for one that is too large."""
    k = ChatKeys.of(source)._asdict()
    size = sum(filter(None, await ask([("MEMORY", "USAGE", k[name]) for name in (*_HASHES, *_LISTS)])))
    if size > FORK_BYTES:
        raise Poison(f"source.chat: has {size} bytes in Redis, the limit of a fork is {FORK_BYTES}")
    hashes, lists = [k[name] for name in _HASHES], [k[name] for name in _LISTS]
    answers = await ask([*(("HGETALL", key) for key in hashes), *(("LRANGE", key, 0, -1) for key in lists)])
    found = iter(answers)
    return Copy({key: dict(table(next(found))) for key in hashes}, {key: list(next(found)) for key in lists})


async def plan(source: Copy, event: ChatForked, end: int, at: datetime) -> Plan:
    """The new chat, with every message before number `end`. Raises Poison where the source's state is damaged."""
    name = event.source.chat
    chat = await reading.chat(source.ask, name)
    assert chat is not None
    if end < chat.number("n"):
        limit = policy.limit(chat)
        await reading.for_cut(source.ask, chat, end, limit.messages)
        source.apply(policy.cut(chat, end, limit, refill=True).changes)
    return _renamed(source, event, at)


def _renamed(source: Copy, event: ChatForked, at: datetime) -> Plan:
    old, new = ChatKeys.of(event.source.chat), ChatKeys.of(event.chat.id)
    window = {name.decode(): value.decode() for name, value in source.hashes[old.window].items()}
    ref = ChatRef.model_validate_json(window["cj"])
    ref = ref.model_copy(update={name: getattr(event.chat, name) for name in event.chat.model_fields_set})
    user = event.user.id if event.user is not None else window.get("u", "")
    version = int(window["v"]) + 1
    for stale in ("ep", "pa", "of"):
        window.pop(stale, None)
    window |= {"cj": ref.model_dump_json(exclude_defaults=True), "u": user, "v": str(version)}
    changes = Changes()
    changes.set(new.window, window)
    for name in ("messages", "turns", "message_ids", "archive"):
        changes.set(getattr(new, name), source.hashes[getattr(old, name)])
    in_use, archived = (
        _summaries(source.hashes[name], event) for name in (old.summaries, old.archived_summaries)
    )
    changes.set(new.summaries, in_use)
    changes.set(new.archived_summaries, archived)
    for name in _LISTS:
        values: Sequence[Any] = source.lists.get(getattr(old, name), [])
        if values:
            changes.replace(getattr(new, name), values)
    generation = int(window.get("g", 0))
    _chunks(changes, new, source.hashes[old.chunks], ref, user, generation, at)
    changes.set(keys.outbox(ref.id, AGENT), _due(in_use.values(), user, at))
    live = int(window.get("lm") or 0)
    return Plan(
        changes=changes,
        generation=generation,
        version=version,
        live=live,
        pending=len(source.hashes[old.messages]) - live,
    )


def _summaries(stored: Mapping[bytes, bytes], event: ChatForked) -> dict[bytes, bytes]:
    renamed = {}
    for name, raw in stored.items():
        summary = from_json(raw)
        summary["provenance"].setdefault("chat_id", summary["chat_id"])
        summary["chat_id"] = event.chat.id
        renamed[name] = to_json(summary)
    return renamed


def _due(in_use: Iterable[bytes], user: str, at: datetime) -> dict[str, str]:
    """What brings a merge that the source had not done yet: each step of merging announces the next."""
    summaries = [Summary.model_validate_json(raw) for raw in in_use]
    if idle([Head(each.tier, each.tokens, each.provenance.level) for each in summaries]):
        return {}
    return announce.saved(max(summaries, key=lambda each: each.span.first_seq), user or None, at)


def _chunks(
    changes: Changes,
    k: ChatKeys,
    stored: Mapping[bytes, bytes],
    ref: ChatRef,
    user: str,
    generation: int,
    at: datetime,
) -> None:
    entries, chunks = {}, {}
    for raw in stored.values():
        chunk = ChunkClosed.model_validate_json(raw)
        span = chunk.span
        chunk = chunk.model_copy(
            update={
                "id": ids.chunk_id(ref.id, generation, span.first_seq, span.last_seq),
                "at": at,
                "chat": ref,
                "user_id": user or None,
                "generation": generation,
            }
        )
        chunks[chunk.id] = chunk.model_dump_json(exclude_none=True)
        entries[chunk.id] = outbox.entry(Topics.CHUNKS, ref.id, chunk)
    changes.set(k.chunks, chunks)
    changes.set(keys.outbox(ref.id, AGENT), entries)
