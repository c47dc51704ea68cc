"""Reads a user's saved memories for a panel: each answer of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from redis.asyncio import Redis

from schemas.memories import GLOBAL, character_of
from services.memories.state import DELETED, SILENT, Entry, Held, parse_entry, parse_place
from services.memories.store import parse_scope
from services.state import keys
from services.state.transaction import at_once

_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Listed:
    """Scopes with their entries by id; `settings` as stored, by character."""

    version: int
    scopes: Mapping[str, Mapping[str, Held]]
    settings: Mapping[str, str]

    @property
    def off(self) -> frozenset[str]:
        """Characters whose chats are not learned from."""
        return frozenset(name for name, value in self.settings.items() if value in SILENT)

    def home(self, scope: str) -> str:
        """Where what belongs into a scope goes: that of a deleted character is the global one (M5)."""
        character = character_of(scope)
        return GLOBAL if character is not None and self.settings.get(character) in DELETED else scope


async def version(redis: Redis, user: str) -> int:
    """Grows with every change of the user's memories; 0 where there has been none."""
    return int(await redis.hget(keys.UserKeys.of(user).watermark, "v") or 0)


async def listed(redis: Redis, user: str, scopes: Sequence[str] | None) -> Listed:
    """These scopes; None: every one that has an entry, and the global one."""
    names = list(scopes) if scopes is not None else await _used(redis, user)
    found = await _read(redis, user, names)
    for _ in range(_ATTEMPTS):
        if scopes is not None or not (
            more := [each for each in await _used(redis, user) if each not in names]
        ):
            break
        # an entry came into a new scope in between
        names += more
        found = await _read(redis, user, names)
    return found


async def _used(redis: Redis, user: str) -> list[str]:
    places = cast("list[bytes]", await redis.hvals(keys.UserKeys.of(user).places))
    scopes = {place.partition(b" ")[0].decode() for place in places} - {"", GLOBAL}
    return [GLOBAL, *sorted(scopes)]


async def _read(redis: Redis, user: str, scopes: Sequence[str]) -> Listed:
    k = keys.UserKeys.of(user)
    commands: list[tuple[Any, ...]] = [("HGET", k.watermark, "v"), ("HGETALL", k.settings)]
    commands += [("HGETALL", keys.scope(user, scope)) for scope in scopes]
    number, settings, *entries = await at_once(redis, commands)
    return Listed(
        int(number or 0),
        {scope: parse_scope(scope, _table(each)) for scope, each in zip(scopes, entries, strict=True)},
        {name.decode(): value.decode() for name, value in _table(settings).items()},
    )


async def setting(redis: Redis, user: str, character: str) -> str | None:
    """The setting of a character as stored; None: as by default."""
    value = await redis.hget(keys.UserKeys.of(user).settings, character)
    return cast("bytes", value).decode() if value is not None else None


async def entry(redis: Redis, user: str, memory_id: str) -> Entry | None:
    """One entry; None where there is none (any more)."""
    for _ in range(_ATTEMPTS):
        place = await redis.hget(keys.UserKeys.of(user).places, memory_id)
        if place is None or not (scope := parse_place(cast("bytes", place)).scope):
            return None
        value = await redis.hget(keys.scope(user, scope), memory_id)
        if value is not None:
            return parse_entry(memory_id, scope, cast("bytes", value))
        # it was moved in between
    return None


async def entries(redis: Redis, user: str, memory_ids: Iterable[str]) -> list[Entry]:
    """Those of them that are there, in their order."""
    found = [await entry(redis, user, memory_id) for memory_id in memory_ids]
    return [each for each in found if each is not None]


def _table(answer: Any) -> dict[bytes, bytes]:
    """An answer to HGETALL: a map in RESP3, a flat list in RESP2."""
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))
