"""Values that the benchmarks share: what one loop took, and how it is printed."""

from __future__ import annotations

import json
import time
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
