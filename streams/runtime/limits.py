"""When dead letters are so many that the records are not what is wrong: stop instead of flooding."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from services.failures import Fatal

MINUTE = 60.0


class DeadLetterLimits:
    """`run` dead letters in a row on one partition, or `rate` in one minute, stop the worker.

    `now` gives seconds of a monotonic clock.
    """

    def __init__(self, run: int, rate: int, now: Callable[[], float]) -> None:
        self._run = run
        self._rate = rate
        self._now = now
        self._rows: dict[int, int] = {}
        self._times: deque[float] = deque()

    def good(self, partition: int) -> None:
        """A record that was not a dead letter ends the row."""
        self._rows.pop(partition, None)

    def dead(self, partition: int, reason: str) -> None:
        """Called before a dead letter is published. Raises Fatal over a limit; nothing of the record is done then."""
        row = self._rows[partition] = self._rows.get(partition, 0) + 1
        if row > self._run:
            raise Fatal(
                f"{row} dead letters in a row on partition {partition}, the limit is {self._run} (AFTERTURN_DEAD_LETTER_RUN); "
                f"the last one: {reason}"
            )
        now = self._now()
        self._times.append(now)
        while self._times[0] <= now - MINUTE:
            self._times.popleft()
        if len(self._times) > self._rate:
            raise Fatal(
                f"{len(self._times)} dead letters in one minute, the limit is {self._rate} (AFTERTURN_DEAD_LETTER_RATE); "
                f"the last one: {reason}"
            )
