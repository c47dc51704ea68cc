"""Saved memories for the benchmarks, written through the service so that every index is right."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

from redis.asyncio import Redis

from schemas import limits
from schemas.delivery import Position
from schemas.memories import GLOBAL, Author, MemoryOps, scope_of
from services.memories.service import Delivered, Memories
from services.memories.store import read_scopes
from services.tokens.counter import TokenCounter
from services.work import Work
from tests.bench import load

CHARACTERS = 450
"""Unicode characters of a memory; 500 are the limit."""

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
BATCH = 20


async def fill(redis: Redis, counter: TokenCounter, users: Sequence[str], characters: Sequence[str]) -> None:
    """The global scope and those of the characters are full for each of these users: 100 unpinned and 20 pinned.

    Raises RuntimeError where one was refused.
    """
    service = Memories(redis, counter, lambda: AT)
    commands = enumerate(_commands(users, (GLOBAL, *map(scope_of, characters))))
    delivered = [Delivered(command, Position("fill", 0, offset), 0) for offset, command in commands]
    for at in range(0, len(delivered), BATCH):
        for done in await service.apply(delivered[at : at + BATCH]):
            if not isinstance(done, Work):
                raise done
            if done.confirmed is not None:
                await done.confirmed()
    for user in users:
        await _check(redis, user, characters)


async def _check(redis: Redis, user: str, characters: Iterable[str]) -> None:
    for scope, entries in (await read_scopes(redis, user, (GLOBAL, *map(scope_of, characters)))).items():
        if len(entries) != limits.MEMORIES_UNPINNED + limits.MEMORIES_PINNED:
            raise RuntimeError(f"{scope} of {user} holds {len(entries)} memories")


def _commands(users: Sequence[str], scopes: Sequence[str]) -> Iterator[MemoryOps]:
    """Commands of different users follow each other: one batch of them is one round trip."""
    number = 0
    for scope in scopes:
        sizes = [(limits.MEMORY_OPS, False)] * (limits.MEMORIES_UNPINNED // limits.MEMORY_OPS)
        for part, (size, pinned) in enumerate([*sizes, (limits.MEMORIES_PINNED, True)]):
            for user in users:
                ops: list[dict[str, Any]] = [
                    {"op": "save", "text": text(number + each), "scope": scope, "pinned": pinned}
                    for each in range(size)
                ]
                number += size
                yield MemoryOps(
                    id=f"fill-{scope}-{part}", at=AT, user_id=user, by=Author.user, ops=tuple(ops)
                )


def text(number: int) -> str:
    """What a memory says, another text for each number."""
    return load.text(number, CHARACTERS)
