"""What a turn costs at the end of a very long chat, over what it costs in a short one."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median

from redis.asyncio import Redis

from infra.stack import folders, valkey
from services.tokens.counter import default_counter
from tests.bench.chats import Chats
from tests.bench.report import Outcome, Target

SHORT, LONG = 100, 20_000
"""Turns that a chat has when it is measured."""
CHATS = 2
ROUNDS = 24
TURNS = 200
"""Turns of one measurement, over CHATS chats: in a round a short chat gets 100 turns more, never enough for a tier that
it did not have at 100."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Per turn. Seconds on the wall, of this process's processor and of Redis's; bytes to and from Redis, and commands
    that it carried out, those of scripts included."""

    wall: float
    cpu: float
    redis: float
    sent: float
    received: float
    commands: float


class Meter:
    """Differences of Redis's own counters around a piece of work."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis

    async def cost(self, work: Callable[[], Awaitable[None]], turns: int) -> Cost:
        """What the coroutine that `work` gives costs a turn."""
        before = await self._counters()
        gc.collect()
        wall, cpu = time.perf_counter(), time.process_time()
        await work()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        after = await self._counters()
        redis, sent, received, commands = ((b - a) / turns for a, b in zip(before, after, strict=True))
        return Cost(wall / turns, cpu / turns, redis, sent, received, commands)

    async def _counters(self) -> tuple[float, int, int, int]:
        info = await self._redis.info("everything")
        used = info["used_cpu_user"] + info["used_cpu_sys"]
        # a counter per command, and each grows inside scripts as well
        commands = sum(each["calls"] for name, each in info.items() if name.startswith("cmdstat_"))
        return used, info["total_net_input_bytes"], info["total_net_output_bytes"], commands


async def run(quick: bool, progress: Callable[[str], None]) -> list[Outcome]:
    """Short and long chats in turn, in one process, on one Redis."""
    long, rounds = (2_000, 6) if quick else (LONG, ROUNDS)
    with folders.temporary() as folder:
        server = await asyncio.to_thread(valkey.start, folder / "redis", folder / "redis.log", keep=False)
        try:
            async with Redis.from_url(valkey.url(server)) as redis:
                windows, memories = await _measure(redis, long, rounds, progress)
        finally:
            await asyncio.to_thread(server.stop)
    return [_outcome(long, rounds, quick, windows, memories)]


Costs = dict[int, list[Cost]]


async def _measure(
    redis: Redis, long: int, rounds: int, progress: Callable[[str], None]
) -> tuple[Costs, Costs]:
    chats = Chats(redis, default_counter())
    meter = Meter(redis)
    old = [f"old-{number}" for number in range(CHATS)]
    started = time.monotonic()
    for part in range(10):
        await chats.grow(old, long // 10)
        progress(f"{CHATS} chats have {long // 10 * (part + 1):,} turns, {time.monotonic() - started:.0f} s")
    windows: Costs = {SHORT: [], long: []}
    memories: Costs = {SHORT: [], long: []}
    for number in range(rounds):
        young = [f"young-{number}-{each}" for each in range(CHATS)]
        await chats.grow(young, SHORT)
        pair: list[tuple[int, Sequence[str]]] = [(SHORT, young), (long, old)]
        for length, names in pair if number % 2 else reversed(pair):
            events = chats.prepare(names, TURNS)
            windows[length].append(await meter.cost(partial(chats.record, events), TURNS))
            memories[length].append(await meter.cost(chats.settle, TURNS))
    progress(f"{rounds} rounds, {time.monotonic() - started:.0f} s")
    return windows, memories


def _outcome(long: int, rounds: int, quick: bool, windows: Costs, memories: Costs) -> Outcome:
    def row(
        what: str, costs: Costs, value: Callable[[Cost], float], scale: float = 1
    ) -> tuple[str, float, float, float]:
        short, other = ([value(cost) * scale for cost in costs[length]] for length in (SHORT, long))
        return what, median(short), median(other), median(b / a for a, b in zip(short, other, strict=True))

    rows = [
        row("window: wall, us", windows, lambda cost: cost.wall, 1e6),
        row("window: CPU of the service, us", windows, lambda cost: cost.cpu, 1e6),
        row("window: CPU of Redis, us", windows, lambda cost: cost.redis, 1e6),
        row("window: bytes to Redis", windows, lambda cost: cost.sent),
        row("window: bytes from Redis", windows, lambda cost: cost.received),
    ]
    targets = [Target(f"{what}, {long:,} turns / {SHORT}", ratio, 1.1) for what, _, _, ratio in rows]
    rows += [
        row("summaries: CPU of the services, us", memories, lambda cost: cost.cpu, 1e6),
        row("summaries: bytes to Redis", memories, lambda cost: cost.sent),
        row("summaries: bytes from Redis", memories, lambda cost: cost.received),
    ]
    return Outcome(
        name="length",
        how=f"{CHATS} chats of {long:,} turns and {CHATS} of {SHORT}, in turn, {rounds} rounds of {TURNS} turns each, "
        "one process, no broker; between the rounds everything is summarised and merged (by clipping).",
        columns=("a turn costs", f"at {SHORT} turns", f"at {long:,} turns", "ratio (median)"),
        rows=rows,
        targets=targets,
        quick=quick,
        notes=(
            "Summarising and merging have no target: a short chat has no long-term memory yet, which later merges "
            "read; it is bounded by its cap.",
        ),
    )
