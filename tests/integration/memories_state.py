"""A user's saved memories as they lie in Redis, checked against each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from redis.asyncio import Redis

from schemas.delivery import Outgoing, Topics
from schemas.memories import MemoryChanged
from services.failures import Poison
from services.memories.service import Memories
from services.memories.state import (
    Change,
    Entry,
    Place,
    parse_change,
    parse_held,
    parse_numbers,
    parse_place,
)
from services.state import keys
from services.work import Work
from tests.memories import START, characters, check


class Clock:
    """A second later each time."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


def memories(redis: Redis) -> Memories:
    """The service, counting characters."""
    return Memories(redis, characters, Clock())


@dataclass(frozen=True)
class State:
    """All that is kept of a user. `journals`: chat -> field -> changes."""

    fields: dict[str, str]
    entries: dict[str, Entry]
    newest: dict[str, int]
    places: dict[str, Place]
    changes: list[Change]
    journals: dict[str, dict[str, tuple[int, ...]]]
    settings: dict[str, str]
    results: dict[str, MemoryChanged]
    outbox: dict[str, MemoryChanged]

    def number(self, field: str) -> int:
        """A counter."""
        return int(self.fields.get(field, 0))

    def texts(self) -> set[str]:
        """What the entries say."""
        return {entry.wording.text for entry in self.entries.values()}


async def read(redis: Redis, user: str = "u1") -> State:
    """Everything of a user."""
    base = f"{{u:{user}}}:"
    k = keys.UserKeys.of(user)
    names = [
        name.decode() async for name in redis.scan_iter(match=base.replace("{", "[{]") + "*", count=1000)
    ]
    pipe = redis.pipeline()
    hashes = [name for name in names if name != k.command_order]
    for name in hashes:
        pipe.hgetall(name)
    found: dict[str, dict[str, bytes]] = {
        name: {field.decode(): value for field, value in answer.items()}
        for name, answer in zip(hashes, await pipe.execute(), strict=True)
    }
    entries, newest = {}, {}
    for name, table in found.items():
        if name.startswith(base + "s:"):
            scope = name.removeprefix(base + "s:")
            for memory_id, value in table.items():
                held = parse_held(memory_id, scope, value)
                entries[memory_id], newest[memory_id] = held.entry(), held.newest
    outbox = {}
    for field, value in found.get(k.outbox, {}).items():
        topic, key, event = json.loads(value)
        assert (topic, key) == (Topics.MEMORY_CHANGES, user)
        outbox[field] = MemoryChanged.model_validate_json(event)
    history = sorted(found.get(k.history, {}).items(), key=lambda item: int(item[0]))
    results = {c: MemoryChanged.model_validate_json(value) for c, value in found.get(k.commands, {}).items()}
    order = [name.decode() for name in await redis.lrange(k.command_order, 0, -1)]
    assert sorted(order) == sorted(results)
    return State(
        {name: value.decode() for name, value in found.get(k.watermark, {}).items()},
        entries,
        newest,
        {memory_id: parse_place(value) for memory_id, value in found.get(k.places, {}).items()},
        [parse_change(value) for _, value in history],
        {
            name.removeprefix(base + "j:"): {field: parse_numbers(value) for field, value in table.items()}
            for name, table in found.items()
            if name.startswith(base + "j:")
        },
        {name: value.decode() for name, value in found.get(k.settings, {}).items()},
        results,
        outbox,
    )


def agrees(state: State) -> None:
    """Entries, places, history and journal tell the same."""
    check(list(state.entries.values()), state.changes)
    assert len(state.changes) == state.number("n")
    last = {change.memory_id: change.number for change in state.changes if change.memory_id}
    assert {memory_id: place.newest for memory_id, place in state.places.items()} == last
    assert state.newest == {memory_id: last[memory_id] for memory_id in state.entries}
    there = {memory_id: place.scope for memory_id, place in state.places.items() if place.scope}
    assert there == {entry.id: entry.scope for entry in state.entries.values()}
    for chat, journal in state.journals.items():
        for field, numbers in journal.items():
            assert numbers
            for number in numbers:
                change = state.changes[number - 1]
                assert not change.taken_back
                assert change.source is not None
                assert change.source.chat == chat
                assert field in (
                    change.source.turn or "",
                    *(f" {message}" for message in change.source.messages),
                )


def works(results: Sequence[Work | Poison]) -> list[Work]:
    """The results, none of which is poison."""
    assert not [result for result in results if isinstance(result, Poison)], results
    return [result for result in results if isinstance(result, Work)]


def told(published: Sequence[Outgoing]) -> list[MemoryChanged]:
    """Results that are to be published."""
    assert all(record.topic == Topics.MEMORY_CHANGES for record in published)
    found = [MemoryChanged.model_validate_json(record.value) for record in published]
    assert [record.key.decode() for record in published] == [each.user_id for each in found]
    return found


async def confirm(results: Sequence[Work]) -> None:
    """As the runtime does once all of them are published."""
    for work in results:
        if work.confirmed is not None:
            await work.confirmed()


async def apply(redis: Redis, *of: Any) -> list[MemoryChanged]:
    """Apply what was delivered, up to the acknowledgement; what was published."""
    results = works(await memories(redis).apply(of))
    await confirm(results)
    return told([record for work in results for record in work.publish])
