"""A fetch that outlives its assignment is thrown away, and read again from what is committed (promise 2)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from faust.transport.consumer import Consumer as FaustConsumer
from faust.types import TP

from streams.runtime.consumer import Consumer

PLACE = TP("chat.turns.v1", 3)
FETCHED = {PLACE: ["a record"]}


def _consumer(monkeypatch: pytest.MonkeyPatch, *, rebalanced: bool) -> tuple[Consumer, list[str]]:
    consumer = Consumer.__new__(Consumer)
    app: Any = SimpleNamespace(consumer_generation_id=7)
    consumer.app = app
    consumer._buffered_partitions = set()
    seeks: list[str] = []

    async def fetch(self: FaustConsumer, timeout: float) -> tuple[Any, Any]:
        if rebalanced:
            app.consumer_generation_id = 8
        return FETCHED, {PLACE}

    async def perform_seek() -> None:
        seeks.append("to committed")

    monkeypatch.setattr(FaustConsumer, "_wait_next_records", fetch)
    monkeypatch.setattr(consumer, "assignment", lambda: {PLACE}, raising=False)
    monkeypatch.setattr(consumer, "perform_seek", perform_seek, raising=False)
    return consumer, seeks


async def test_records_of_an_old_assignment_are_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, seeks = _consumer(monkeypatch, rebalanced=True)
    assert await consumer._wait_next_records(1.0) == ({}, {PLACE})
    assert seeks == ["to committed"]


async def test_records_of_this_assignment_are(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer, seeks = _consumer(monkeypatch, rebalanced=False)
    assert await consumer._wait_next_records(1.0) == (FETCHED, {PLACE})
    assert seeks == []


async def test_seeking_back_reaches_partitions_without_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [TP("chat.turns.v1", number) for number in range(4)]
    committed = dict(zip(places, (5, None, 0, -1), strict=True))
    beginnings: list[TP] = []

    class Thread:
        async def seek_to_committed(self) -> dict[TP, int | None]:
            return committed

        async def seek_to_beginning(self, *partitions: Any) -> None:
            beginnings.extend(TP(each.topic, each.partition) for each in partitions)

    consumer = Consumer.__new__(Consumer)
    consumer._thread = Thread()
    consumer._read_offset = dict.fromkeys(places, 99)
    consumer._committed_offset = {}
    await consumer.perform_seek()
    assert beginnings == places[1:]
    assert (
        consumer._read_offset
        == consumer._committed_offset
        == dict(zip(places, (5, None, None, None), strict=True))
    )


def test_a_partition_without_a_position_does_not_end_the_worker() -> None:
    """Faust would ask aiokafka for it while the assignment is being made, and crash."""
    consumer = Consumer.__new__(Consumer)
    thread = SimpleNamespace(verify_event_path=lambda now, tp: pytest.fail("asked"))
    consumer._thread = thread  # type: ignore[assignment]
    consumer.verify_event_path(0.0, PLACE)
