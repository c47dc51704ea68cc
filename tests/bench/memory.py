"""Resident memory of a window worker and a summarise worker over many turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import aiohttp

from tests.bench import load
from tests.bench.machine import CORES, Worker, servers
from tests.bench.pipeline import agents, publishing
from tests.bench.report import Outcome, Target

TURNS = 200_000
SIZES = (120, 280)
"""Characters of a turn's messages: shorter than elsewhere, so that summarising all of it takes minutes."""
AHEAD = 10_000
"""Turns that the topic is ahead of the window at most."""
DEADLINE_S = 1_500.0
POLL_S = 0.5
MARKS = (0.1, 0.25, 0.5, 0.75, 1.0)
AGENTS = ("window", "summarise")


@dataclass
class Track:
    """Samples of one worker: (records done, MiB)."""

    worker: Worker
    start: float
    samples: list[tuple[float, float]] = field(default_factory=list)

    async def sample(self, http: aiohttp.ClientSession) -> float:
        """Take one; records done so far."""
        done = await self.worker.metric(http, "done_total")
        self.samples.append((done, self.worker.rss))
        return done


def at_marks(samples: Sequence[tuple[float, float]], marks: Sequence[float] = MARKS) -> list[float]:
    """The memory when each share of what was done in the end had first been done."""
    total = samples[-1][0]
    return [next(size for done, size in samples if done >= mark * total) for mark in marks]


async def run(broker: str, quick: bool, progress: Callable[[str], None]) -> list[Outcome]:
    """Turns go in as fast as the window takes them; ends when every chunk is summarised."""
    turns = TURNS // 10 if quick else TURNS
    async with (
        servers(broker) as settings,
        publishing(settings) as publisher,
        agents(settings, AGENTS, cores=set(CORES)) as running,
        aiohttp.ClientSession() as http,
        asyncio.timeout(DEADLINE_S),
    ):
        tracks = {name: Track(each, each.rss) for name, each in running.items()}
        sent, shown = 0, time.monotonic()
        while True:
            done = {name: await track.sample(http) for name, track in tracks.items()}
            chunks = await running["window"].metric(http, "published_total")
            if time.monotonic() - shown > 15:
                shown = time.monotonic()
                sizes = ", ".join(f"{name} {track.samples[-1][1]:.0f} MiB" for name, track in tracks.items())
                progress(
                    f"{done['window']:,.0f} turns, {done['summarise']:,.0f} of {chunks:,.0f} chunks; {sizes}"
                )
            if done["window"] >= turns and done["summarise"] >= chunks:
                break
            if sent < turns and sent - done["window"] < AHEAD:
                await load.publish(publisher, range(sent, sent := min(turns, sent + AHEAD // 2)), SIZES)
            else:
                await asyncio.sleep(POLL_S)
    return [_outcome(broker, turns, quick, tracks)]


def _outcome(broker: str, turns: int, quick: bool, tracks: dict[str, Track]) -> Outcome:
    rows: list[tuple[str | float, ...]] = []
    targets: list[Target] = []
    for name, track in tracks.items():
        sizes = at_marks(track.samples)
        largest = max(size for _, size in track.samples)
        rows.append((name, f"{track.samples[-1][0]:,.0f}", track.start, *sizes, largest))
        targets += [
            Target(f"{name}, largest", largest, 200.0, unit="MiB"),
            Target(f"{name}, growth from 25 % to the end", sizes[-1] - sizes[1], 5.0, unit="MiB"),
        ]
    return Outcome(
        name="memory",
        how=f"Broker: {broker}; {turns:,} turns over {load.CHATS} chats, one worker of each.",
        columns=(
            "worker, MiB",
            "records",
            "at start",
            *(f"at {mark:.0%}" for mark in MARKS),
            "largest",
        ),
        rows=rows,
        targets=targets,
        quick=quick,
        notes=("Flat is taken to be a growth of at most 5 MiB over the last three quarters.",),
    )
