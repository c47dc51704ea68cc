"""Values that the benchmarks share: what a loop took, percentiles, and calls on a fixed schedule."""

from __future__ import annotations

import asyncio
import json
import math
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """What a loop took for `turns` turns: seconds on the wall, and of the processor by this process."""

    turns: int
    wall: float
    cpu: float

    @property
    def rate(self) -> float:
        """Turns a second."""
        return self.turns / self.wall

    @property
    def cpu_us(self) -> float:
        """Microseconds of the processor a turn."""
        return self.cpu / self.turns * 1e6

    def as_json(self) -> str:
        """One line, for the process that compares."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, line: str) -> Result:
        """From `as_json`."""
        return cls(**json.loads(line))


class Clock:
    """Wall and processor time since it was made."""

    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def result(self, turns: int) -> Result:
        """What `turns` turns took."""
        return Result(turns, time.perf_counter() - self._wall, time.process_time() - self._cpu)


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of the values do not exceed (nearest rank).

    Raises ValueError without values.
    """
    if not values:
        raise ValueError("no values")
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


async def open_loop(rate: float, count: int, call: Callable[[int], Awaitable[object]]) -> list[float]:
    """Start `call(0)`, `call(1)`, ... at a fixed rate, whether earlier ones have ended or not.

    Returns the seconds from the moment each was due (not: begun) to its end. A thread keeps the time, because the
    event loop's own timers are good to a millisecond only. Raises what a call raises.
    """
    loop = asyncio.get_running_loop()
    latencies: list[float] = [0.0] * count
    tasks: set[asyncio.Task[None]] = set()
    ended = loop.create_future()
    stop = threading.Event()
    begin = time.perf_counter() + 0.05
    left = count

    async def one(number: int, due: float) -> None:
        nonlocal left
        await call(number)
        latencies[number] = time.perf_counter() - due
        left -= 1
        if not left and not ended.done():
            ended.set_result(None)

    def failed(task: asyncio.Task[None]) -> None:
        tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not ended.done():
            ended.set_exception(error)

    def fire(number: int, due: float) -> None:
        task = loop.create_task(one(number, due))
        tasks.add(task)
        task.add_done_callback(failed)

    def keep_time() -> None:
        for number in range(count):
            due = begin + number / rate
            if stop.wait(max(0.0, due - time.perf_counter())):
                return
            loop.call_soon_threadsafe(fire, number, due)

    thread = threading.Thread(target=keep_time, name="schedule", daemon=True)
    thread.start()
    try:
        await ended
    finally:
        stop.set()
        await asyncio.to_thread(thread.join)
        for task in tasks:
            task.cancel()
    return latencies
