"""What is in flight in one worker: bounded, ordered per key, and ended within a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any


class Flights:
    """Tasks of one agent. The first failure of one is kept for the worker, which then stops."""

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_failure = on_failure

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` as a task of its own."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)

    async def land(self, deadline: float) -> int:
        """Wait up to `deadline` seconds for all that is in flight, then cancel the rest. Returns how many were cancelled."""
        if not self._tasks:
            return 0
        _, late = await asyncio.wait(set(self._tasks), timeout=deadline)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)
        return len(late)


class Lanes:
    """Order per key, parallel across keys: a record starts when the one before it of the same key has ended."""

    def __init__(self, in_flight: int) -> None:
        self._slots = asyncio.Semaphore(in_flight)
        self._last: dict[bytes | None, asyncio.Task[None]] = {}

    async def run(self, before: asyncio.Task[None] | None, work: Callable[[], Awaitable[None]]) -> None:
        """The body of a record's task. A slot is held only while the record is at the head of its lane."""
        if before is not None and not before.done():
            await asyncio.wait({before})
        if before is not None and (before.cancelled() or before.exception() is not None):
            # what came before has to be delivered again, and so has this, behind it
            raise asyncio.CancelledError
        async with self._slots:
            await work()

    def enter(
        self, key: bytes | None, start: Callable[[asyncio.Task[None] | None], asyncio.Task[None]]
    ) -> asyncio.Task[None]:
        """Put a record at the end of its lane; `start` makes its task from the one before it."""
        task = self._last[key] = start(self._last.get(key))

        def leave(ended: asyncio.Task[None]) -> None:
            if self._last.get(key) is ended:
                del self._last[key]

        task.add_done_callback(leave)
        return task
