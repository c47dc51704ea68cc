"""Worker processes as an operator starts them, and a SIGKILL for one of them at a time."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from infra.stack import tether
from tests.stack import until

FULL: Mapping[str, int] = {"window": 3, "summarise": 2, "merge": 2, "memories": 2, "credits": 1}


class Kill(NamedTuple):
    """Which agent's worker was killed, and when (monotonic seconds)."""

    agent: str
    at: float


@dataclass
class Place:
    """A worker that is to be there; its process changes with every kill."""

    agent: str
    log: Path
    process: asyncio.subprocess.Process | None = None


@dataclass
class Workers:
    """All workers of a run. `environment` is added to this process's own."""

    environment: Mapping[str, str]
    folder: Path
    places: list[Place] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)

    async def start(self, count: Mapping[str, int]) -> None:
        """Start so many of each agent."""
        for agent, copies in count.items():
            for copy in range(copies):
                place = Place(agent, self.folder / f"{agent}-{copy}.log")
                self.places.append(place)
                await self._start(place)

    async def _start(self, place: Place) -> None:
        with place.log.open("ab") as log:
            # the kernel ends the worker with this process, however that ends
            place.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", "-S", tether.__file__, str(os.getpid())),
                *(sys.executable, "-m", "streams.cli", "worker", place.agent),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    async def ready(self, deadline: float = 90.0) -> None:
        """Until all of them have said that they are started."""

        async def started() -> bool:
            self.check_running()
            logs = [await asyncio.to_thread(place.log.read_bytes) for place in self.places]
            return all(b'"started"' in log for log in logs)

        await until(started, "all workers are started", deadline)

    async def kill(self, place: Place) -> None:
        """SIGKILL, and a new process in its place at once."""
        assert place.process is not None
        assert place.process.returncode is None, f"{place.agent} had ended by itself: {self.tail(place)}"
        place.process.kill()
        self.kills.append(Kill(place.agent, time.monotonic()))
        await place.process.wait()
        await self._start(place)

    def victims(self, count: int, dice: random.Random) -> list[Place]:
        """Whom to kill, in order: every worker once, further ones by chance."""
        chosen = dice.sample(self.places, min(count, len(self.places)))
        return chosen + dice.choices(self.places, k=count - len(chosen))

    def check_running(self) -> None:
        """Raise AssertionError with the log of a worker that has ended by itself."""
        for place in self.places:
            assert place.process is None or place.process.returncode is None, (
                f"{place.agent} ended with {place.process.returncode}: {self.tail(place)}"
            )

    async def stop(self, deadline: float = 60.0) -> dict[str, int]:
        """SIGTERM to all; the exit code of each by the name of its log."""
        for place in self.places:
            if place.process is not None and place.process.returncode is None:
                place.process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(deadline):
            for place in self.places:
                if place.process is not None:
                    await place.process.wait()
        return {p.log.stem: p.process.returncode or 0 for p in self.places if p.process is not None}

    async def end(self) -> None:
        """SIGKILL for whatever is left."""
        for place in self.places:
            if place.process is not None and place.process.returncode is None:
                place.process.kill()
                await place.process.wait()

    def tail(self, place: Place, size: int = 2_000) -> str:
        """The end of a worker's log."""
        return place.log.read_bytes()[-size:].decode(errors="replace")

    def logged(self) -> str:
        """Everything that all workers wrote."""
        return "".join(place.log.read_text(errors="replace") for place in self.places)


@asynccontextmanager
async def running(
    environment: Mapping[str, str], folder: Path, count: Mapping[str, int]
) -> AsyncIterator[Workers]:
    """Workers that are gone at the end."""
    workers = Workers(environment, folder)
    try:
        await workers.start(count)
        yield workers
    finally:
        await workers.end()
