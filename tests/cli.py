"""The command `afterturn` as a process of its own, in a process group of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

_ENTRY = "from streams.cli import main; main()"


class Ended(NamedTuple):
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str


class Command:
    """A command that runs. Its output is collected line by line."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.out: list[str] = []
        self.err: list[str] = []
        self._news = asyncio.Condition()
        self._reading = [
            asyncio.create_task(self._collect(stream, lines))
            for stream, lines in ((process.stdout, self.out), (process.stderr, self.err))
        ]

    async def _collect(self, stream: asyncio.StreamReader | None, lines: list[str]) -> None:
        assert stream is not None
        async for line in stream:
            async with self._news:
                lines.append(line.decode().rstrip("\n"))
                self._news.notify_all()
        async with self._news:
            self._news.notify_all()

    async def line(self, having: str, deadline: float = 90.0) -> str:
        """The first line of either output with these words. Raises AssertionError where it ends without one."""
        async with asyncio.timeout(deadline), self._news:
            while True:
                found = next((line for line in (*self.out, *self.err) if having in line), None)
                if found is not None:
                    return found
                output = "\n".join((*self.out, *self.err))
                assert not all(task.done() for task in self._reading), f"no {having!r} in\n{output}"
                await self._news.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process alone, not to its children."""
        self._process.send_signal(number)

    async def ended(self, deadline: float = 90.0) -> Ended:
        """Wait for its end."""
        async with asyncio.timeout(deadline):
            await asyncio.gather(*self._reading)
            code = await self._process.wait()
        return Ended(code, "\n".join(self.out), "\n".join(self.err))

    @property
    def alive(self) -> bool:
        """Whether the process or one that it started is there."""
        try:
            os.killpg(self._process.pid, 0)
        except ProcessLookupError:
            return False
        return True


@asynccontextmanager
async def started(*arguments: str, **environment: str) -> AsyncIterator[Command]:
    """A command in the background, killed with all it started where the block leaves it running."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _ENTRY, *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment},
        start_new_session=True,
    )
    command = Command(process)
    try:
        yield command
    finally:
        if command.alive:
            os.killpg(process.pid, signal.SIGKILL)
        await command.ended()


async def run(*arguments: str, deadline: float = 90.0, **environment: str) -> Ended:
    """A command to its end."""
    async with started(*arguments, **environment) as command:
        return await command.ended(deadline)
