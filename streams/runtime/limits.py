"""When dead letters are so many that the records are not what is wrong: stop instead of flooding."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

from services.failures import Fatal

MINUTE = 60.0

EACH = 10
"""Dead letters of one source that count in a row, and in a minute. More of them say that the source is wrong, which is no
reason to stop for everybody else."""


class DeadLetterLimits:
    """More than `run` dead letters in a row on one partition, or than `rate` in one minute, stop the worker. Of one source
    at most EACH count: it takes several that are wrong to show that the records are not what is wrong.

    `now` gives seconds of a monotonic clock.
    """

    def __init__(self, run: int, rate: int, now: Callable[[], float]) -> None:
        self._run = run
        self._rate = rate
        self._now = now
        self._rows: dict[int, Counter[bytes | None]] = {}
        self._times: deque[tuple[float, bytes | None]] = deque()
        self._minute: Counter[bytes | None] = Counter()

    def good(self, partition: int) -> None:
        """A record that was not a dead letter ends the row."""
        self._rows.pop(partition, None)

    def dead(self, partition: int, reason: str, source: bytes | None = None) -> None:
        """Called before a dead letter is published. Raises Fatal over a limit; nothing of the record is done then.

        `source`: who is likely to be at fault (services.deadletters.policy.source); None where the record is not.
        """
        sources = self._rows.setdefault(partition, Counter())
        if self._counts(sources, source):
            sources[source] += 1
        if (row := sources.total()) > self._run:
            raise Fatal(
                f"{row} dead letters in a row on partition {partition}, the limit is {self._run} (AFTERTURN_DEAD_LETTER_RUN); "
                f"the last one: {reason}"
            )
        now = self._now()
        while self._times and self._times[0][0] <= now - MINUTE:
            _, gone = self._times.popleft()
            self._minute[gone] -= 1
            if not self._minute[gone]:
                del self._minute[gone]
        if not self._counts(self._minute, source):
            return
        self._times.append((now, source))
        self._minute[source] += 1
        if len(self._times) > self._rate:
            raise Fatal(
                f"{len(self._times)} dead letters in one minute, the limit is {self._rate} (AFTERTURN_DEAD_LETTER_RATE); "
                f"the last one: {reason}"
            )

    @staticmethod
    def _counts(sources: Counter[bytes | None], source: bytes | None) -> bool:
        return source is None or sources[source] < EACH
