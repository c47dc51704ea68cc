"""Up to when each partition of the turns is applied: whoever has a partition says so, forks ask (docs/decisions/0020).

One hash per log, `applied:<epoch>`:

| field | value |
|---|---|
| `<partition>` | milliseconds since 1970: all that was written to the partition before is applied |
| `<partition>:fork` | `<milliseconds> <steps>`: it stands at a fork of that time; steps grow while its source comes nearer |

Both statements stay true: a worker that lost its partition does no harm with what it says late, and a fork's mark that was
left behind by a kill says no more than that all before the fork is applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from redis.asyncio import Redis

from services.state.scripts import Script

KEPT = 86_400
"""Seconds that a log's hash is kept after the last report."""

_SCRIPT = Script("services.state", "applied.lua")


class Waiting(NamedTuple):
    """A fork that waits. `at`: milliseconds; `steps` grows while its source comes nearer."""

    at: int
    steps: int


class Progress(NamedTuple):
    """What is known of one partition. `applied`: milliseconds, everything written before is applied."""

    applied: int | None
    fork: Waiting | None


async def report(redis: Redis, epoch: str, applied: Mapping[int, int]) -> None:
    """Say up to when (milliseconds since 1970) partitions are applied. Raises redis.RedisError."""
    if applied:
        pairs = [value for pair in applied.items() for value in pair]
        await _SCRIPT.run(redis, [_key(epoch)], [KEPT, *pairs])


def asked(epoch: str, partition: int) -> tuple[Any, ...]:
    """The command that asks about a partition; `progress` reads its answer."""
    return ("HMGET", _key(epoch), str(partition), _fork(partition))


def progress(answer: Any) -> Progress:
    """From the answer to `asked`."""
    applied, fork = answer
    return Progress(
        None if applied is None else int(applied),
        None if fork is None else Waiting(*map(int, fork.split())),
    )


def mark(epoch: str, partition: int, fork: Waiting) -> tuple[Any, ...]:
    """The command that says at which fork a partition stands."""
    return ("HSET", _key(epoch), _fork(partition), f"{fork.at} {fork.steps}")


def unmark(epoch: str, partition: int) -> tuple[Any, ...]:
    """The command that says that it goes on."""
    return ("HDEL", _key(epoch), _fork(partition))


def _key(epoch: str) -> str:
    return f"applied:{epoch}"


def _fork(partition: int) -> str:
    return f"{partition}:fork"
