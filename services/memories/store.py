"""Saved memories in Redis: what a command needs is read in few round trips, what it comes to is written in one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, cast

from redis.asyncio import Redis

from schemas import limits
from schemas.delivery import Position, Topics
from schemas.memories import MemoryChanged, MemoryCommand
from services.failures import Transient
from services.memories.cache import Kept
from services.memories.decide import Outcome
from services.memories.edits import Edits
from services.memories.needs import Also, Needs, missing
from services.memories.state import (
    SILENT,
    Change,
    Held,
    Known,
    Mark,
    dump_change,
    dump_numbers,
    parse_change,
    parse_held,
    parse_numbers,
    parse_place,
)
from services.state import keys, outbox
from services.state.scripts import Script
from services.state.transaction import at_once

AGENT = "memories"

REMEMBERED = 1_000
"""Commands of a user whose results are remembered."""

_TRIPS = 50
"""Round trips for one reading, those that were in vain because somebody wrote included."""

WRITE = Script(
    "services.memories",
    "write.lua",
    {
        "UNPINNED": str(limits.MEMORIES_UNPINNED),
        "PINNED": str(limits.MEMORIES_PINNED),
        "REMEMBERED": str(REMEMBERED),
    },
)
CHAINS = Script("services.memories", "chains.lua")


class Wanted(NamedTuple):
    """A user, and commands (or scopes) for which their memories are to be known. `command` is looked up as well.

    Scopes that are `kept` are not read again if they are still right.
    """

    user: str
    commands: tuple[MemoryCommand | Also, ...]
    command: str | None = None
    kept: Kept | None = None


class Reply(NamedTuple):
    """What the script answered: status, a detail of it, and the outbox by field."""

    status: str
    detail: bytes
    outbox: Mapping[bytes, bytes]


# reading


async def load(redis: Redis, wanted: Sequence[Wanted]) -> list[Known]:
    """What is known of each user, all of one moment each. Raises Transient where others write all the time."""
    readings = [_Reading(each) for each in wanted]
    for _ in range(_TRIPS):
        going_on = [reading for reading in readings if reading.needs]
        if not going_on:
            return [reading.known for reading in readings]
        walks = [reading.walk() for reading in going_on if reading.needs.walks]
        chains = iter(await CHAINS.run_all(redis, walks) if walks else ())
        commands = [reading.commands() for reading in going_on]
        answers = iter(await at_once(redis, [command for each in commands for command in each]))
        for reading, asked in zip(going_on, commands, strict=True):
            walked = next(chains) if reading.needs.walks else None
            reading.learn(walked, [next(answers) for _ in asked])
    raise Transient("a user's memories change faster than they can be read", outage=True)


class _Reading:
    """What is read of one user, round trip after round trip. Begins anew where the version has changed."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._keys = keys.UserKeys.of(wanted.user)
        self._begin(wanted.kept)

    def _begin(self, kept: Kept | None = None) -> None:
        self._kept = kept
        self.known = Known()
        if kept is not None:
            self.known.scopes = {scope: dict(entries) for scope, entries in kept.scopes.items()}
        self._first = True
        self._look()

    def _look(self) -> None:
        self.needs = Needs()
        for command in self._wanted.commands:
            # one chat's journal at a time
            self.needs = missing(command, self.known)
            if self.needs:
                break
        if self._first and not self.needs:
            self.needs.settings = True

    def walk(self) -> tuple[tuple[str, ...], list[Any]]:
        """Keys and arguments of chains.lua."""
        k = self._keys
        arguments = [part for walk in self.needs.walks.items() for part in walk]
        return (k.watermark, k.places, k.history), arguments

    def commands(self) -> list[tuple[Any, ...]]:
        """What to ask Redis, in one transaction."""
        k, needs = self._keys, self.needs
        self._asked = asked = (
            sorted(needs.scopes),
            sorted(needs.ids),
            sorted(needs.changes),
            sorted(needs.fields) if needs.fields is not None else None,
        )
        scopes, ids, changes, fields = asked
        commands: list[tuple[Any, ...]] = [("HMGET", k.watermark, "v", "n", "ep", "of")]
        if self._first:
            commands.append(("HGETALL", k.settings))
            if self._wanted.command is not None:
                commands.append(("HGET", k.commands, self._wanted.command))
        commands += [("HGETALL", keys.scope(self._wanted.user, scope)) for scope in scopes]
        if ids:
            commands.append(("HMGET", k.places, *ids))
        if changes:
            commands.append(("HMGET", k.history, *map(str, changes)))
        if needs.journal:
            journal = keys.journal(self._wanted.user, needs.journal)
            if fields is None:
                commands.append(("HGETALL", journal))
            elif fields:
                commands.append(("HMGET", journal, *fields))
        return commands

    def learn(self, walked: list[Any] | None, answers: list[Any]) -> None:
        """Take in the answers to `walk` and `commands`, and find out what is still missing."""
        known, answer = self.known, iter(answers)
        v, n, epoch, offset = next(answer)
        version = int(v or 0)
        if self._first:
            known.version, known.number = version, int(n or 0)
            if self._kept is not None:
                mark = Mark(version, (epoch or b"").decode(), int(offset or 0))
                if mark != self._kept.mark:
                    self._begin()
                    return
        elif version != known.version:
            self._begin()
            return
        if walked is not None and int(walked[0]) != version:
            self._begin()
            return
        if self._first:
            known.settings = _texts(next(answer))
            if self._wanted.command is not None:
                known.result = next(answer)
        self._first = False
        scopes, ids, changes, fields = self._asked
        for scope in scopes:
            known.scopes[scope] = parse_scope(scope, next(answer))
        if ids:
            for memory_id, place in zip(ids, next(answer), strict=True):
                known.places[memory_id] = parse_place(place) if place is not None else None
        if changes:
            for at, change in zip(changes, next(answer), strict=True):
                known.changes[at] = parse_change(change) if change is not None else None
        if self.needs.journal:
            self._journal(fields, answer)
        for value in walked[1:] if walked is not None else ():
            change = parse_change(value)
            known.changes[change.number] = change
        known.walked.update(self.needs.walks)
        if known.result is None:
            self._look()
        else:
            self.needs = Needs()

    def _journal(self, fields: list[str] | None, answer: Any) -> None:
        journal = self.known.journals.setdefault(self.needs.journal, {})
        if fields is None:
            journal |= {name.decode(): parse_numbers(value) for name, value in next(answer).items()}
            self.known.whole_journals.add(self.needs.journal)
        elif fields:
            journal |= {
                name: parse_numbers(value or b"") for name, value in zip(fields, next(answer), strict=True)
            }


async def read_scopes(redis: Redis, user: str, scopes: Iterable[str]) -> dict[str, dict[str, Held]]:
    """Entries of these scopes by id, of one moment."""
    names = list(dict.fromkeys(scopes))
    answers = await at_once(redis, [("HGETALL", keys.scope(user, scope)) for scope in names])
    return {scope: parse_scope(scope, answer) for scope, answer in zip(names, answers, strict=True)}


async def read_history(redis: Redis, user: str, before: int | None, count: int) -> list[Change]:
    """`count` changes, the newest first, from the one before `before`; without it from the newest one."""
    k = keys.UserKeys.of(user)
    if before is None:
        before = int(await redis.hget(k.watermark, "n") or 0) + 1
    numbers = range(before - 1, max(0, before - 1 - count), -1)
    if not numbers:
        return []
    values = await redis.hmget(k.history, [str(number) for number in numbers])
    return [parse_change(cast(bytes, value)) for value in values if value is not None]


async def read_entry_history(redis: Redis, user: str, memory_id: str) -> list[Change]:
    """All changes of one entry, the newest first."""
    k = keys.UserKeys.of(user)
    answer = await CHAINS.run(redis, (k.watermark, k.places, k.history), [memory_id, 0])
    return [parse_change(value) for value in answer[1:]]


async def read_result(redis: Redis, user: str, command: str) -> MemoryChanged | None:
    """What became of a command; None: it is not known (yet, or any more)."""
    value = await redis.hget(keys.UserKeys.of(user).commands, command)
    return MemoryChanged.model_validate_json(value) if value is not None else None


async def read_off(redis: Redis, user: str) -> set[str]:
    """Characters whose chats are not learned from (O1)."""
    answer = await redis.hgetall(keys.UserKeys.of(user).settings)
    return {
        character
        for character, value in _texts(cast("Mapping[bytes, bytes]", answer)).items()
        if value in SILENT
    }


def parse_scope(scope: str, answer: Mapping[bytes, bytes]) -> dict[str, Held]:
    """Entries of a scope by id, from its hash."""
    return {
        (memory_id := name.decode()): parse_held(memory_id, scope, value) for name, value in answer.items()
    }


def _texts(answer: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode(): value.decode() for name, value in answer.items()}


# writing


def unchanged(known: Known) -> Outcome:
    """The outcome of a command that has taken effect before, for the script to find that out."""
    assert known.result is not None
    return Outcome(MemoryChanged.model_validate_json(known.result), Edits(known), None, {})


def call(command: MemoryCommand, position: Position, outcome: Outcome) -> tuple[list[str], list[Any]]:
    """Keys and arguments of write.lua."""
    user, edits = command.user_id, outcome.edits
    k = keys.UserKeys.of(user)
    hashes: list[tuple[str, Sequence[str], Mapping[str, bytes | str]]] = [
        (keys.scope(user, scope), deletes, sets) for scope, sets, deletes in edits.touched()
    ]
    scopes = len(hashes)
    if edits.places:
        hashes.append((k.places, (), {key: place.value() for key, place in edits.places.items()}))
    if edits.changes:
        history = {str(number): dump_change(change) for number, change in edits.changes.items()}
        hashes.append((k.history, (), history))
    if edits.settings:
        off = {key: value for key, value in edits.settings.items() if value is not None}
        hashes.append((k.settings, [key for key in edits.settings if key not in off], off))
    if outcome.journal:
        assert outcome.chat is not None
        noted = {key: dump_numbers(value) for key, value in outcome.journal.items() if value}
        gone = [key for key in outcome.journal if key not in noted]
        hashes.append((keys.journal(user, outcome.chat), gone, noted))
    result = outcome.result
    names = [k.watermark, k.commands, k.command_order, k.outbox, k.channel, *(key for key, _, _ in hashes)]
    arguments: list[Any] = [
        position.epoch,
        position.partition,
        position.offset,
        command.id,
        edits.known.version,
        result.version,
        edits.number,
        result.model_dump_json(exclude_none=True),
        outbox.entry(Topics.MEMORY_CHANGES, user, result),
        scopes,
    ]
    for _, deletes, sets in hashes:
        arguments += (len(deletes), len(sets), *deletes)
        for pair in sets.items():
            arguments += pair
    return names, arguments


async def write(redis: Redis, calls: Sequence[tuple[Sequence[str], Sequence[Any]]]) -> list[Reply]:
    """Run the calls, in one round trip."""
    replies = []
    for status, detail, *fields in await WRITE.run_all(redis, calls):
        pairs = dict(zip(fields[::2], fields[1::2], strict=True))
        replies.append(Reply(status.decode(), bytes(detail), pairs))
    return replies


async def trim(redis: Redis, fields: Mapping[str, Sequence[bytes]]) -> None:
    """Drop outbox entries of users that the broker has confirmed."""
    pipe = redis.pipeline(transaction=False)
    for user, names in fields.items():
        pipe.hdel(keys.UserKeys.of(user).outbox, *names)
    await pipe.execute()


async def settled(redis: Redis, rollbacks: Iterable[tuple[str, str]]) -> None:
    """Chat and command id of rollbacks that have taken effect: their chats need not remember them."""
    pipe = redis.pipeline(transaction=False)
    for chat, command in rollbacks:
        pipe.hdel(keys.ChatKeys.of(chat).memory_rollbacks, command)
    await pipe.execute()
