"""A summariser is asked once for an answer, though saving it takes several attempts (C1)."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError

from services.summaries import store
from services.summaries.service import Call, Summaries
from tests.integration.summaries_state import Clock, Told, booked, close_chunks, confirm, count, in_use, saved


@pytest.mark.rule("C1")
@pytest.mark.parametrize("script", ["save_recent", "save_merged"])
async def test_an_answer_outlives_an_outage_of_the_store(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    calls: list[Call] = []
    summaries = Summaries(redis, Told(), count, Clock(), observe=calls.append, monotonic=lambda: 0.0)
    chunks = await close_chunks(redis, 4)
    save, broken = getattr(store, script), True

    async def away_once(*args: Any) -> Any:
        nonlocal broken
        if broken:
            broken = False
            raise ConnectionError("away")
        return await save(*args)

    monkeypatch.setattr(store, script, away_once)
    uses = 0
    for closed in chunks:
        try:
            work = await summaries.summarise(closed)
        except ConnectionError:
            work = await summaries.summarise(closed)
        uses += len(booked(work))
        await confirm(work)
    try:
        merged = await summaries.merge(saved(work)[0])
    except ConnectionError:
        merged = await summaries.merge(saved(work)[0])
    uses += len(booked(merged))

    assert not broken
    assert len(calls) == uses == 5
    assert len(await in_use(redis)) == 1
