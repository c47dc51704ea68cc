"""Reads users' saved memories for the audit: each at one moment, one after the other.

Raises redis.RedisError where the store is away. What cannot be understood becomes a finding, never an exception.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

from redis.asyncio import Redis

from services.audit.parsing import Parsing, text
from services.audit.report import Finding
from services.audit.user import Kept, Mark, Trace, UserSnapshot
from services.memories import echo
from services.memories.state import (
    Change,
    Wording,
    parse_change,
    parse_held,
    parse_numbers,
    parse_place,
)
from services.state import keys

PAGE = 1_000
"""Changes in one answer: usually some hundred KiB, at worst a few MiB."""

READS = 5
"""Times that a user's memories are read, where something changes in between."""


async def users(redis: Redis) -> AsyncIterator[str]:
    """Every user with saved memories, at least once."""
    async for key in redis.scan_iter(match=keys.USER_PATTERN, count=1_000, _type="HASH"):
        yield keys.user_of(key.decode())


async def user_snapshot(redis: Redis, user: str) -> tuple[UserSnapshot, list[Finding]] | None:
    """The user's memories at one moment, and what of them cannot be understood; None where there are none.

    Memories that change all the time are read as they come: what does not fit together then is found.
    """
    for attempt in range(1, READS + 1):
        found = await _read(redis, user)
        if found is None:
            return None
        state, findings, version = found
        if version == await redis.hget(keys.UserKeys.of(user).watermark, "v") or attempt == READS:
            return state, findings
    raise AssertionError("unreachable")


async def _read(redis: Redis, user: str) -> tuple[UserSnapshot, list[Finding], Any] | None:
    k = keys.UserKeys.of(user)
    parsing = Parsing(user=user)
    async with redis.pipeline(transaction=True) as pipe:
        pipe.hgetall(k.watermark)
        pipe.hgetall(k.places)
        pipe.hgetall(k.settings)
        pipe.hkeys(k.commands)
        pipe.lrange(k.command_order, 0, -1)
        pipe.hlen(k.outbox)
        window, places, settings, commands, ordered, outbox = await pipe.execute()
    if not window:
        return None
    changes = {change.number: change async for change in _changes(redis, k.history, parsing)}
    scopes = {change.scope for change in changes.values()} | {
        change.from_scope for change in changes.values() if change.from_scope is not None
    }
    known = parsing.table("x", places, str, parse_place)
    scopes |= {place.scope or place.gone_from for place in known.values()}
    chats = {change.source.chat for change in changes.values() if change.source is not None}
    names, named = sorted(scopes), sorted(chats)
    async with redis.pipeline(transaction=True) as pipe:
        for scope in names:
            pipe.hgetall(keys.scope(user, scope))
        for chat in named:
            pipe.hgetall(keys.journal(user, chat))
        answers = await pipe.execute()
    entries, noted = answers[: len(names)], answers[len(names) :]
    kept = [
        each._replace(id=memory_id)
        for scope, held in zip(names, entries, strict=True)
        for memory_id, each in parsing.table(f"s:{scope}", held, str, _kept(scope)).items()
    ]
    return (
        UserSnapshot(
            user=user,
            newest=parsing.number("w", window, b"n"),
            places=known,
            entries=tuple(kept),
            changes={number: _trace(change) for number, change in changes.items()},
            journals={
                chat: parsing.table(f"j:{chat}", fields, str, parse_numbers)
                for chat, fields in zip(named, noted, strict=True)
            },
            settings={text(name): text(value) for name, value in settings.items()},
            commands=frozenset(map(text, commands)),
            ordered=tuple(map(text, ordered)),
            outbox=int(outbox),
        ),
        parsing.findings,
        window.get(b"v"),
    )


async def _changes(redis: Redis, key: str, parsing: Parsing) -> AsyncIterator[Change]:
    fields = sorted(cast("list[bytes]", await redis.hkeys(key)), key=lambda name: (len(name), name))
    for start in range(0, len(fields), PAGE):
        page = fields[start : start + PAGE]
        values = cast("list[bytes | None]", await redis.hmget(key, page))
        present = {name: value for name, value in zip(page, values, strict=True) if value is not None}
        for name, change in parsing.table("h", present, str, parse_change).items():
            if name == str(change.number):
                yield change
            else:
                parsing.note(f"h: field {name[:100]} has change {change.number}", ValueError())


def _kept(scope: str) -> Callable[[bytes], Kept]:
    def parse(value: bytes) -> Kept:
        held = parse_held("", scope, value)
        wording = held.entry().wording
        return Kept(
            "",
            scope,
            held.pinned,
            held.order,
            held.newest,
            held.tokens,
            len(wording.text),
            _mark(wording),
            wording.tokens,
            held.likeness == echo.likeness(wording.text),
        )

    return parse


def _mark(wording: Wording) -> Mark:
    return Mark(wording.order, hash(wording))


def _trace(change: Change) -> Trace:
    return Trace(
        change.number,
        change.previous,
        change.memory_id,
        change.action,
        change.by,
        change.source,
        change.scope,
        _mark(change.before) if change.before is not None else None,
        _mark(change.after) if change.after is not None else None,
        change.taken_back,
    )
