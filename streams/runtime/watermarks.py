"""Up to when the partitions of an agent are done: everything written before that time has had its effects.

What is said stays true, also of a partition that has gone to another worker meanwhile. So it is never the present time,
which would be a guess about what is on its way, but

- where records are not done, the time of the oldest one;
- where there are none behind what is done, the time of the answer before the broker's last one: that one was asked for
  later, and its highwater counts all that was written before it was asked. An answer may have waited here to be read, so
  its own time says nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from faust.types import TP

from streams.runtime.acks import OrderedAcks

REPORT_EVERY = 0.5
"""Seconds between two reports."""

Report = Callable[[Mapping[int, int]], Awaitable[None]]
"""Is given milliseconds since 1970 by partition; raises nothing."""


class Fetches(Protocol):
    """What is needed of a consumer; see streams/runtime/consumer.py."""

    acks: dict[TP, OrderedAcks]

    def assignment(self) -> set[TP]:
        """Its partitions."""

    def fetched(self, tp: TP) -> tuple[int, int] | None:
        """Time of the last answer about a partition, and its highwater then or later."""

    def done_before(self, tp: TP) -> int | None:
        """The offset before which all is done."""


class Watermarks:
    """Of one topic."""

    def __init__(self, consumer: Fetches, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic
        self._answers: dict[TP, tuple[int, int]] = {}
        """By partition the time of an answer that was seen, and of an earlier one."""

    async def keep_reporting(
        self, report: Report, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Until it is cancelled."""
        while True:
            await sleep(REPORT_EVERY)
            if times := self.read():
                await report(times)

    def read(self) -> dict[int, int]:
        """By partition, milliseconds since 1970; without those of which nothing is known. To be called again and again."""
        times = {}
        tps = {tp for tp in self._consumer.assignment() if tp.topic == self._topic}
        self._answers = {tp: answers for tp, answers in self._answers.items() if tp in tps}
        for tp in tps:
            at = self._done_until(tp)
            if at is not None and at > 0:
                times[tp.partition] = at
        return times

    def _done_until(self, tp: TP) -> int | None:
        answer = self._consumer.fetched(tp)
        if answer is None:
            return None
        at, highwater = answer
        last, before = self._answers.get(tp, (at, 0))
        if at > last:
            last, before = at, last
        self._answers[tp] = last, before
        acks = self._consumer.acks.get(tp)
        if acks is not None and acks.oldest is not None:
            # a record of a clock that is ahead is not from later than it was read
            return min(acks.oldest, before)
        done = self._consumer.done_before(tp)
        return before if (done or 0) >= highwater else None
