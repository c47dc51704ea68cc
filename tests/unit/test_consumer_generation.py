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
    seeks: list[str] = []

    async def fetch(self: FaustConsumer, timeout: float) -> tuple[Any, Any]:
        if rebalanced:
            app.consumer_generation_id = 8
        return FETCHED, {PLACE}

    async def perform_seek() -> None:
        seeks.append("to committed")

    monkeypatch.setattr(FaustConsumer, "_wait_next_records", fetch)
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
