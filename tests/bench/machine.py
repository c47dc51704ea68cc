"""The machine that is measured: its cores, its servers, and the workers that are started on it."""

from __future__ import annotations

import asyncio
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from infra import topics
from infra.stack import Stack
from infra.stack.ports import LOOPBACK, free_ports
from services.settings import Settings

ROOT = Path(__file__).parent.parent.parent
CORES = sorted(os.sched_getaffinity(0))
WORKER_CORES = set(CORES[-1:])
SERVER_CORES = set(CORES[:-1]) or WORKER_CORES
"""What is measured has the last core for itself; servers and the driver have the others."""

START_S = 60.0


def leave_the_worker_core() -> None:
    """This process and all that it starts from now on keep off the worker's core. To be called before any thread."""
    os.sched_setaffinity(0, SERVER_CORES)


def describe() -> str:
    """Processor, cores, memory, system: one line."""
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    python = platform.python_version()
    return f"{model}, {len(CORES)} cores, {memory:.0f} GiB, Linux {platform.release()}, Python {python}"


@asynccontextmanager
async def servers(broker: str) -> AsyncIterator[Settings]:
    """A broker with its topics, each with a leader, and an empty Redis; their addresses."""
    async with Stack(broker) as stack:
        await topics.apply(stack.bootstrap)
        yield Settings(kafka=stack.bootstrap, redis=stack.redis_url)


@dataclass(frozen=True, slots=True)
class Worker:
    """A process of the command `afterturn`. `url` is its health port's, or the gateway's."""

    process: asyncio.subprocess.Process
    url: str

    @property
    def rss(self) -> float:
        """Resident memory in MiB."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    @property
    def cpu(self) -> float:
        """Seconds of the processor that it has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def metric(self, http: aiohttp.ClientSession, name: str) -> float:
        """A metric's value, summed over its labels."""
        async with http.get(f"{self.url}/metrics") as answer:
            lines = (await answer.text()).splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"afterturn_{name}{{"))


@asynccontextmanager
async def worker(
    settings: Settings, *command: str, cores: set[int] = WORKER_CORES, **environment: str
) -> AsyncIterator[Worker]:
    """`afterturn COMMAND` until the end of the block; given back when it is healthy. Raises RuntimeError with the end
    of its log where it is not after START_S."""
    (port,) = free_ports(1)
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", "from streams.cli import main; main()", *command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=folder,
                env=child_environment()
                | {"AFTERTURN_KAFKA": settings.kafka, "AFTERTURN_REDIS": settings.redis}
                | {"AFTERTURN_HEALTH_PORT": str(port), "AFTERTURN_GATEWAY_PORT": str(port)}
                | environment,
            )
        os.sched_setaffinity(process.pid, cores)
        try:
            started = Worker(process, f"http://{LOOPBACK}:{port}")
            await _healthy(started, log)
            yield started
        finally:
            await _stop(process)


def child_environment() -> dict[str, str]:
    """What a child inherits: no setting of ours, and this repository to import from."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("AFTERTURN_", "OPENAI_"))
    }
    return kept | {"PYTHONPATH": str(ROOT)}


async def _healthy(started: Worker, log: Path) -> None:
    end = time.monotonic() + START_S
    async with aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(f"{started.url}/healthz") as answer:
                    if answer.status == 200:
                        return
            except aiohttp.ClientError:  # it does not listen yet
                pass
            if started.process.returncode is not None or time.monotonic() > end:
                raise RuntimeError(f"the worker did not start\n{_tail(log)}")
            await asyncio.sleep(0.05)


def _tail(log: Path) -> str:
    return log.read_text()[-2_000:]


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), 40)
        except TimeoutError:
            process.kill()
            await process.wait()
