"""Turns a second of the window agent, as a ratio to a bare loop and to a plain Faust agent in the same run."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from statistics import median

from redis.asyncio import Redis

from services.settings import Settings
from streams.runtime.publisher import Publisher
from tests.bench import load
from tests.bench.machine import WORKER_CORES, child_environment, servers
from tests.bench.measure import Result
from tests.bench.report import Outcome, Target

ROUNDS = 3
TURNS = 20_000
LOOPS = ("bare", "plain", "agent")
LOOP_S = 300.0


async def run(broker: str, quick: bool, progress: Callable[[str], None]) -> list[Outcome]:
    """Without and with usage in the turns; with it the agent also books every reply, the other two loops do not."""
    outcomes = []
    for usage in (False, True):
        results: dict[str, list[Result]] = {name: [] for name in LOOPS}
        turns = 5_000 if quick else TURNS
        for number in range(1 if quick else ROUNDS):
            await _round(broker, turns, usage, number, results, progress)
        outcomes.append(_outcome(broker, turns, usage, quick, results))
    return outcomes


async def _round(
    broker: str,
    turns: int,
    usage: bool,
    number: int,
    results: dict[str, list[Result]],
    progress: Callable[[str], None],
) -> None:
    """All loops in turn, each on an empty Redis and from the start of the topic."""
    async with servers(broker) as settings:
        publisher = Publisher(settings)
        await publisher.start()
        await load.publish(publisher, range(turns), usage=usage)
        await publisher.stop()
        # the order rotates, so that none always has the warm page cache
        for name in LOOPS[number % len(LOOPS) :] + LOOPS[: number % len(LOOPS)]:
            async with Redis.from_url(settings.redis) as redis:
                await redis.flushall()
            result = await loop(name, settings, turns)
            results[name].append(result)
            progress(f"{name:5} {result.rate:8,.0f} turns/s  {result.cpu_us:6.1f} us CPU a turn")


async def loop(name: str, settings: Settings, turns: int) -> Result:
    """One loop in a process of its own on the worker's core. Raises RuntimeError with what it wrote where it fails."""
    with tempfile.TemporaryDirectory() as folder:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.loops", name, settings.kafka, settings.redis, str(turns)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=folder,
            env=child_environment(),
        )
        os.sched_setaffinity(process.pid, WORKER_CORES)
        try:
            out, err = await asyncio.wait_for(process.communicate(), LOOP_S)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"{name} failed\n{err.decode()[-2_000:]}")
    return Result.read(out.decode().splitlines()[-1])


def _outcome(broker: str, turns: int, usage: bool, quick: bool, results: dict[str, list[Result]]) -> Outcome:
    def ratio(measure: Callable[[Result], float], of: str, to: str) -> float:
        pairs = zip(results[of], results[to], strict=True)
        return median(measure(one) / measure(other) for one, other in pairs)

    rows = []
    for name in LOOPS:
        rates = [result.rate for result in results[name]]
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        rows.append((name, median(rates), spread, median(result.cpu_us for result in results[name])))
    rate, cpu = (lambda result: result.rate), (lambda result: result.cpu_us)
    targets = (
        Target("turns/s, agent / bare", ratio(rate, "agent", "bare"), 0.8, at_least=True),
        Target("turns/s, agent / plain", ratio(rate, "agent", "plain"), 2.5, at_least=True),
        Target("CPU a turn, agent / bare", ratio(cpu, "agent", "bare"), 2.0),
    )
    rounds = len(results["agent"])
    booked = (
        "each with the reply's usage, which the agent books as one more record" if usage else "without usage"
    )
    return Outcome(
        name=f"window-{broker}" + ("-usage" if usage else ""),
        how=f"Broker: {broker}; {rounds} round(s) of {turns:,} turns over {load.CHATS} chats, {booked}.",
        columns=("loop", "turns/s (median)", "lowest to highest", "CPU us/turn"),
        rows=rows,
        targets=targets,
        quick=quick,
    )
