"""One call for what arrives on several partitions within a short time: large inserts instead of many small ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from schemas.delivery import Record
from services.failures import Poison
from services.work import Work
from streams.runtime.handling import BatchHandler

Results = Sequence[Work | Poison]


class Coalesce:
    """A batch handler that joins the batches of all partitions: until `rows` are there, or `delay` seconds have passed.

    A failure is a failure of every batch that was joined; each is then tried again by its own partition.
    """

    def __init__(self, handle: BatchHandler, rows: int, delay: float) -> None:
        self._handle = handle
        self._rows = rows
        self._delay = delay
        self._waiting: list[tuple[Sequence[Record], asyncio.Future[Results]]] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._running: set[asyncio.Task[None]] = set()

    async def __call__(self, records: Sequence[Record]) -> Results:
        """The results of these records."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Results] = loop.create_future()
        self._waiting.append((records, future))
        self._size += len(records)
        if self._size >= self._rows:
            self._flush()
        elif self._timer is None:
            self._timer = loop.call_later(self._delay, self._flush)
        return await future

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        batches, self._waiting, self._size = self._waiting, [], 0
        if batches:
            task = asyncio.get_running_loop().create_task(self._run(batches))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, batches: Sequence[tuple[Sequence[Record], asyncio.Future[Results]]]) -> None:
        records = [record for batch, _ in batches for record in batch]
        try:
            results = await self._handle(records)
        except Exception as error:
            for _, future in batches:
                if not future.done():
                    future.set_exception(error)
            return
        at = 0
        for batch, future in batches:
            if not future.done():
                future.set_result(results[at : at + len(batch)])
            at += len(batch)
