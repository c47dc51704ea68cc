"""Saved memories as they lie in Redis, read without the product's code, and against what a model says of the commands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from tests.faults.journal import Entry
from tests.faults.mind import Mind
from tests.faults.story import Story, Told
from tests.faults.trouble import CHANGES, COMMANDS

TEXT = ("created", "edited", "deleted", "displaced", "restored", "cleared")
"""Actions that set or end a text."""


@dataclass(frozen=True)
class Kept:
    """One user's memories: id -> scope, pin, text; the history by number; settings; fields of the outbox."""

    user: str
    entries: dict[str, tuple[str, bool, str]]
    changes: dict[int, dict[str, Any]]
    off: bool
    outbox: list[str]


async def read(redis: Redis) -> list[Kept]:
    """Of all users."""
    users = sorted([key.decode()[3:-3] async for key in redis.scan_iter("{u:*}:w", count=1_000)])
    return [await _read(redis, user) for user in users]


async def _read(redis: Redis, user: str) -> Kept:
    base = f"{{u:{user}}}:"
    scopes = ("global", "character:mira", "character:tom")
    async with redis.pipeline(transaction=True) as pipe:
        for name in (*(f"s:{scope}" for scope in scopes), "h", "l"):
            pipe.hgetall(base + name)
        pipe.hkeys(base + "o:memories")
        *tables, history, settings, outbox = await pipe.execute()
    entries = {}
    for scope, table in zip(scopes, tables, strict=True):
        for id, value in table.items():
            pinned, *_, body = value.split(b" ", 5)
            entries[id.decode()] = (scope, pinned == b"1", json.loads(body)[0][0])
    changes = {int(number): json.loads(value) for number, value in history.items()}
    return Kept(user, entries, changes, settings.get(b"mira") == b"0", [name.decode() for name in outbox])


def once(entries: Iterable[Entry]) -> list[dict[str, Any]]:
    """Events in the order of the log, each id when it came first."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        found.setdefault(entry.event["id"], entry.event)
    return list(found.values())


def told(commands: list[dict[str, Any]], stories: dict[str, Story]) -> Iterator[str]:
    """Every chat has told what it had to, in its order, and nothing else was told but what came from outside."""
    by_chat: dict[str, list[Told]] = {}
    for command in commands:
        chat = command.get("chat_id") or (command.get("source") or {}).get("chat")
        if chat is not None:
            by_chat.setdefault(chat, []).append(_told(command))
    for chat, story in stories.items():
        wanted = [each._replace(turns=_sorted(each.turns)) for each in story.told]
        found = by_chat.pop(chat, [])
        if found != wanted:
            at = next(
                (n for n, pair in enumerate(zip(found, wanted, strict=False)) if pair[0] != pair[1]),
                "the end",
            )
            yield f"{chat}: {len(found)} commands on memories, {len(wanted)} expected, the first difference at {at}"
    if by_chat:
        yield f"commands on memories from {sorted(by_chat)}"


def _sorted(turns: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if turns is None else tuple(sorted(turns))


def _told(command: dict[str, Any]) -> Told:
    if command["type"] == "memory.rollback":
        messages = command.get("messages")
        return Told(
            "memory.rollback",
            _sorted(command.get("turns")),
            messages=None if messages is None else tuple(messages),
        )
    return Told("memory.ops", (command["source"]["turn"],), tuple(command["ops"]))


def outside(commands: list[dict[str, Any]], sent: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What was sent from outside is in the log; nothing else is there without a chat."""
    found = {c["id"]: c for c in commands if not (c.get("chat_id") or c.get("source"))}
    if found != sent:
        yield f"memories: {len(found)} commands from outside in the log, {len(sent)} were sent"


def minds(commands: list[dict[str, Any]]) -> tuple[dict[str, Mind], dict[str, list[tuple[str, str]]]]:
    """Every user's memories after the commands, and what became of each command by its id."""
    users: dict[str, Mind] = {}
    results = {}
    for command in commands:
        results[command["id"]] = users.setdefault(command["user_id"], Mind()).apply(command)
    return users, results


def check(kept: list[Kept], users: dict[str, Mind]) -> Iterator[str]:
    """Memories are the model's, and every history is unbroken."""
    if [each.user for each in kept] != sorted(users):
        yield f"memories of {len(kept)} users, {len(users)} expected"
    for each in kept:
        mind = users.get(each.user, Mind())
        there = mind.there()
        for id in sorted(there.keys() | each.entries.keys()):
            if there.get(id) != each.entries.get(id):
                yield f"{each.user}: memory {id} is {each.entries.get(id)}, not {there.get(id)}"
        if each.off != mind.off:
            yield f"{each.user}: learning is {'off' if each.off else 'on'}"
        if each.outbox:
            yield f"{each.user}: the outbox holds {each.outbox}"
        said = {c[side][0] for c in each.changes.values() for side in ("before", "after") if side in c}
        if said != mind.texts():
            yield f"{each.user}: the history quotes {said ^ mind.texts()} and should not, or the reverse"
        yield from _history(each)


def _history(kept: Kept) -> Iterator[str]:
    """Numbers without a gap, each entry's changes a chain that leads to what the entry says."""
    if sorted(kept.changes) != list(range(1, len(kept.changes) + 1)):
        yield f"{kept.user}: the history has gaps"
    newest: dict[str, int] = {}
    says: dict[str, str | None] = {}
    for number, change in sorted(kept.changes.items()):
        id = change["memory_id"]
        if id and change["previous"] != newest.get(id, 0):
            yield f"{kept.user}: change {number} follows {change['previous']}, not {newest.get(id, 0)}"
        newest[id] = number
        if change["action"] not in TEXT or change.get("taken_back"):
            if "before" in change or "after" in change:
                yield f"{kept.user}: change {number} still quotes"
            continue
        before, after = (change[side][0] if side in change else None for side in ("before", "after"))
        if before != says.get(id):
            yield f"{kept.user}: change {number} replaced something else than there was"
        says[id] = after
    left = {id: text for id, text in says.items() if text is not None}
    if left != {id: text for id, (_, _, text) in kept.entries.items()}:
        yield f"{kept.user}: the history does not lead to what the entries say"


def announced(changed: list[dict[str, Any]], results: dict[str, list[tuple[str, str]]]) -> Iterator[str]:
    """One result per command, and it is the model's."""
    found = {
        event["command_id"]: [(r["op"], r["status"]) for r in event.get("results", ())] for event in changed
    }
    if found.keys() != results.keys() or len(found) != len(changed):
        yield f"results of {len(changed)} commands ({len(found)} ids), {len(results)} were given"
    for id in found.keys() & results.keys():
        if found[id] != results[id]:
            yield f"command {id}: {found[id]}, not {results[id]}"


def wrong(
    entries: dict[str, list[Entry]],
    kept: list[Kept],
    stories: dict[str, Story],
    sent: dict[str, dict[str, Any]],
) -> tuple[list[str], dict[str, Mind]]:
    """All that is wrong with memories, and what they should be. `entries` without poison."""
    commands = once(entries[COMMANDS])
    users, results = minds(commands)
    found = [
        *told(commands, stories),
        *outside(commands, sent),
        *check(kept, users),
        *announced(once(entries[CHANGES]), results),
    ]
    return found, users
