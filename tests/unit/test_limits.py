"""A worker stops instead of flooding the dead letters."""

from __future__ import annotations

import pytest

from services.failures import Fatal
from streams.runtime.limits import EACH, DeadLetterLimits


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_row_on_one_partition() -> None:
    limits = DeadLetterLimits(run=3, rate=1_000, now=Clock())
    for _ in range(3):
        limits.dead(7, "text: too long")
    with pytest.raises(
        Fatal, match=r"4 dead letters in a row on partition 7, the limit is 3 .*text: too long"
    ):
        limits.dead(7, "text: too long")


def test_a_good_record_ends_the_row_of_its_partition_alone() -> None:
    limits = DeadLetterLimits(run=2, rate=1_000, now=Clock())
    for partition in (1, 1, 2, 2):
        limits.dead(partition, "reason")
    limits.good(1)
    limits.dead(1, "reason")
    limits.dead(1, "reason")
    with pytest.raises(Fatal, match="partition 2"):
        limits.dead(2, "reason")


def test_the_rate_over_one_minute() -> None:
    clock = Clock()
    limits = DeadLetterLimits(run=1_000, rate=3, now=clock)
    for partition in range(3):
        limits.dead(partition, "reason")
        limits.good(partition)
    clock.now += 59.9
    with pytest.raises(
        Fatal, match=r"4 dead letters in one minute, the limit is 3 \(AFTERTURN_DEAD_LETTER_RATE\)"
    ):
        limits.dead(0, "reason")


def test_what_is_a_minute_old_does_not_count() -> None:
    clock = Clock()
    limits = DeadLetterLimits(run=1_000, rate=3, now=clock)
    for _ in range(10):
        for _ in range(3):
            limits.dead(0, "reason")
        clock.now += 60


def test_one_source_alone_stops_nothing() -> None:
    clock = Clock()
    limits = DeadLetterLimits(run=2 * EACH, rate=2 * EACH, now=clock)
    for _ in range(1_000):
        limits.dead(0, "reason", b"u1")
    # what others have wrong counts beside it
    for number in range(EACH - 1):
        limits.dead(0, "reason", b"v%d" % number)
    limits.dead(0, "reason", b"w")
    with pytest.raises(Fatal, match="21 dead letters in a row on partition 0"):
        limits.dead(0, "reason", b"x")


def test_one_source_counts_anew_after_a_good_record_and_after_a_minute() -> None:
    clock = Clock()
    limits = DeadLetterLimits(run=1_000, rate=2 * EACH - 1, now=clock)
    for _ in range(3):
        for _ in range(2 * EACH):
            limits.dead(0, "reason", b"u1")
        clock.now += 60
    limits.good(0)
    for _ in range(2 * EACH):
        limits.dead(0, "reason", b"u1")
    for _ in range(EACH - 1):
        limits.dead(0, "reason", b"u2")
    with pytest.raises(Fatal, match="20 dead letters in one minute"):
        limits.dead(0, "reason", b"u2")


def test_what_is_not_the_records_fault_counts_whoever_it_is_from() -> None:
    limits = DeadLetterLimits(run=2 * EACH, rate=1_000, now=Clock())
    for _ in range(2 * EACH):
        limits.dead(0, "parked")
    with pytest.raises(Fatal, match="in a row"):
        limits.dead(0, "parked")
