"""Reads the saved memories of a context: the second round trip, on the keys of the user.

The chat was read before. What it takes back of memories is noted with it (Snapshot.rollbacks) and takes effect on the
user's keys a moment later. A reader sees both or neither:

| since the chat was read | what is done |
|---|---|
| something was taken back in it (its generation is another one) | both are read again |
| a rollback noted with it has taken effect | nothing: what was read is without it |
| a rollback noted with it has not | it is carried out on what is read, by the rules that the memories agent has |

Shown by tests/integration/test_context_memories.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis

from schemas.context import MemoryOff
from schemas.memories import GLOBAL, Author, MemoryRollback, character_of, scope_of
from services.context.choices import Choice, Choices
from services.context.entries import memory
from services.context.memories import Beyond, Memories, Status
from services.context.snapshot import Snapshot
from services.memories.edits import Edits, Writer
from services.memories.needs import Also
from services.memories.selection import Candidate, Selection, select
from services.memories.state import SILENT, milliseconds
from services.memories.store import Wanted, load
from services.memories.undo import taken_back
from services.state import keys
from services.state.keys import ChatKeys, UserKeys
from services.state.transaction import at_once

_SILENT = {value.encode() for value in SILENT}
_tuple = tuple.__new__
"""Makes a named tuple in a third less time than its class does; a context may have to look at hundreds."""


async def read(redis: Redis, chat: Snapshot, user: str | None, now: int, choices: Choices) -> Memories | None:
    """The memories of `user` for the characters of a chat; None where both are to be read again.

    `now` is in milliseconds since 1970. Raises redis errors as they are, and Transient where others write all the time.
    """
    if chat.bounty:
        return Memories(off=MemoryOff.bounty)
    if user is None:
        return Memories(off=MemoryOff.signed_out)
    characters = tuple(dict.fromkeys(chat.characters))
    scopes = (GLOBAL, *map(scope_of, characters))
    choice = choices.find(user, scopes)
    k = UserKeys.of(user)
    entries = _entries(user, scopes, choice)
    version, *answers, generation = await at_once(
        redis,
        [
            ("HGET", k.watermark, "v"),
            *entries,
            *((("HMGET", k.settings, *characters),) if characters else ()),
            *((("HMGET", k.commands, *chat.rollbacks),) if chat.rollbacks else ()),
        ],
        [("HGET", ChatKeys.of(chat.chat).window, "g")],
    )
    if int(generation or 0) != chat.generation:
        return None
    stored, others = answers[: len(entries)], answers[len(entries) :]
    off = _off(characters, others.pop(0)) if characters else ()
    if characters and len(off) == len(characters):
        return Memories(off=MemoryOff.learning_off, learning_off=off)
    heard = tuple(scope for scope in scopes if character_of(scope) not in off)
    waiting = _waiting(chat, user, others.pop(0)) if chat.rollbacks else []
    if waiting:
        found = await _without(redis, chat, user, heard, waiting)
        return None if found is None else chosen(select(found), now, off)
    if choice is None:
        selection = select(
            candidates(scope, answer) for scope, answer in zip(scopes, stored, strict=True) if scope in heard
        )
        choice = Choice.of(int(version or 0), selection, _beyond(selection), now)
        choices.put(user, scopes, choice)
        bodies = {each.id: each.body for each in (*selection.pinned, *selection.unpinned)}
        return choice.filled([bodies[id] for _, ids in choice.asked for id in ids], now, off)
    values = [value for answer in stored for value in answer]
    if not choice.holds(int(version or 0), now) or None in values:
        choices.drop(user, scopes)
        return await read(redis, chat, user, now, choices)
    return choice.filled(values, now, off)


def _off(characters: Sequence[str], settings: Sequence[bytes | None]) -> tuple[str, ...]:
    return tuple(character for character, value in zip(characters, settings, strict=True) if value in _SILENT)


async def status(redis: Redis, chat: Snapshot) -> Status:
    """What a chat reads of its owner's memories. Raises redis errors as they are."""
    if chat.bounty:
        return Status(off=MemoryOff.bounty)
    if chat.user is None:
        return Status(off=MemoryOff.signed_out)
    characters = tuple(dict.fromkeys(chat.characters))
    scopes = (GLOBAL, *map(scope_of, characters))
    k = UserKeys.of(chat.user)
    version, *answers = await at_once(
        redis,
        [
            ("HGET", k.watermark, "v"),
            *(("HLEN", keys.scope(chat.user, scope)) for scope in scopes),
            *((("HMGET", k.settings, *characters),) if characters else ()),
        ],
    )
    off = _off(characters, answers.pop()) if characters else ()
    if characters and len(off) == len(characters):
        return Status(int(version or 0), MemoryOff.learning_off, off)
    counts = zip(scopes, map(int, answers), strict=True)
    heard = tuple((scope, count) for scope, count in counts if character_of(scope) not in off)
    return Status(int(version or 0), None, off, heard)


def _entries(user: str, scopes: Sequence[str], choice: Choice | None) -> list[tuple[Any, ...]]:
    if choice is None:
        return [("HGETALL", keys.scope(user, scope)) for scope in scopes]
    return [("HMGET", keys.scope(user, scope), *ids) for scope, ids in choice.asked]


def candidates(scope: str, answer: Any) -> list[Candidate]:
    """From the hash of a scope (services.memories.state.Held); texts are not read."""
    # a map in RESP3, a flat list in RESP2
    entries = answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    return [
        _tuple(Candidate, (int(order), memory_id.decode(), scope, pinned == b"1", int(tokens), body))
        for memory_id, value in entries
        for pinned, order, _, tokens, _, body in (value.split(b" ", 5),)
    ]


def chosen(selection: Selection, now: int, learning_off: tuple[str, ...] = ()) -> Memories:
    """What was selected, its texts read."""
    return Memories(
        [memory(each, each.body, now) for each in selection.pinned],
        [memory(each, each.body, now) for each in selection.unpinned],
        _beyond(selection),
        learning_off=learning_off,
    )


def _beyond(selection: Selection) -> Beyond:
    return Beyond(
        tuple([each.id for each in selection.beyond]), sum([each.tokens for each in selection.beyond])
    )


def _waiting(chat: Snapshot, user: str, results: Sequence[bytes | None]) -> list[MemoryRollback]:
    """Rollbacks of the user's memories that have not taken effect, in the order in which they will."""
    rollbacks = [
        MemoryRollback.model_validate_json(value)
        for value, result in zip(chat.rollbacks.values(), results, strict=True)
        if result is None
    ]
    return sorted(
        (each for each in rollbacks if each.user_id == user), key=lambda each: (each.generation, each.id)
    )


async def _without(
    redis: Redis, chat: Snapshot, user: str, scopes: Sequence[str], rollbacks: Sequence[MemoryRollback]
) -> list[list[Candidate]] | None:
    """These scopes as they are once the rollbacks have taken effect; None where both are to be read again."""
    [known] = await load(redis, [Wanted(user, (*rollbacks, Also(tuple(scopes))))])
    k = UserKeys.of(user)
    version, results, generation = await at_once(
        redis,
        [("HGET", k.watermark, "v"), ("HMGET", k.commands, *(each.id for each in rollbacks))],
        [("HGET", ChatKeys.of(chat.chat).window, "g")],
    )
    if int(version or 0) != known.version or int(generation or 0) != chat.generation:
        return None
    edits = Edits(known)
    for rollback, result in zip(rollbacks, results, strict=True):
        if result is None:
            taken_back(edits, rollback, Writer(Author.system, rollback.id, milliseconds(rollback.at)))
    return [
        [
            Candidate(held.order, held.id, scope, held.pinned, held.tokens, held.body)
            for held in edits.scope(scope).values()
        ]
        for scope in scopes
    ]
