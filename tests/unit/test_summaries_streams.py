"""The thin parts around the service: decoding in the agents, metrics, the thread of a summariser that computes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from schemas.chat import ChatRef, Level
from schemas.chunks import ChunkClosed, Span
from schemas.delivery import Record
from schemas.summaries import Body, Summary, SummarySaved, Tier
from schemas.usage import Stage
from services.failures import Poison
from services.metrics import Metrics
from services.summaries.in_thread import InThread
from services.summaries.metering import metered
from services.summaries.port import Draft, SourceMessage
from services.summaries.service import Call, Summaries
from services.work import DONE, Work
from streams import merge, summarise

AT = datetime(2026, 1, 1, tzinfo=UTC)
SPAN = Span(first_seq=0, last_seq=9, first_message="m0", last_message="m9", messages=10)
CHUNK = ChunkClosed(
    id="k", at=AT, chat=ChatRef(id="c1"), generation=0, index=0, span=SPAN, tokens=100, level=Level.balanced
)
SAVED = SummarySaved(
    id="e",
    at=AT,
    chat_id="c1",
    generation=0,
    summary_id="k",
    tier=Tier.recent,
    version=1,
    span=SPAN,
    tokens=9,
)


class Service:
    """Notes what it is called with."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    async def summarise(self, chunk: ChunkClosed) -> Work:
        self.seen.append(chunk)
        return DONE

    async def merge(self, event: SummarySaved) -> Work:
        self.seen.append(event)
        return DONE


def record(value: bytes, key: bytes = b"c1") -> Record:
    return Record("topic", 0, 0, key, value, (), 0)


@pytest.mark.parametrize(("agent", "event"), [(summarise, CHUNK), (merge, SAVED)])
async def test_an_agent_hands_the_decoded_event_to_its_service(agent: Any, event: Any) -> None:
    service = Service()
    handle = agent.build(cast("Summaries", service))
    assert await handle(record(event.model_dump_json().encode())) is DONE
    assert service.seen == [event]


@pytest.mark.parametrize("agent", [summarise, merge])
@pytest.mark.parametrize("value", [b"", b"{}", b"\xff", b'{"type": "other"}'])
async def test_what_does_not_decode_is_poison(agent: Any, value: bytes) -> None:
    service = Service()
    with pytest.raises(Poison):
        await agent.build(cast("Summaries", service))(record(value))
    assert service.seen == []


@pytest.mark.parametrize(("agent", "event"), [(summarise, CHUNK), (merge, SAVED)])
async def test_a_key_of_another_chat_is_poison(agent: Any, event: Any) -> None:
    handle = agent.build(cast("Summaries", Service()))
    with pytest.raises(Poison, match="key"):
        await handle(record(event.model_dump_json().encode(), b"c2"))


def test_calls_are_metered_by_stage() -> None:
    metrics = Metrics("merge")
    observe = metered(metrics)
    observe(Call(Stage.merge, "answered", 1.5, 100, 10))
    observe(Call(Stage.merge, "failed", 0.5, 50, 0))

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(name, {"agent": "merge", "stage": "merge", **labels})

    assert value("afterturn_model_calls_total", outcome="answered") == 1
    assert value("afterturn_model_calls_total", outcome="failed") == 1
    assert value("afterturn_model_seconds_sum") == 2.0
    assert value("afterturn_model_tokens_total", direction="in") == 150
    assert value("afterturn_model_tokens_total", direction="out") == 10


class Computing:
    """Notes the thread it runs in; waits for a future where it is told to."""

    model = "computing"

    def __init__(self, waiting: Any = None) -> None:
        self.waiting = waiting
        self.threads: list[str] = []

    async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
        self.threads.append(threading.current_thread().name)
        if self.waiting is not None:
            await self.waiting
        return Draft(Body(facts=(f"{level} {budget}",)), self.model, "p", 1, 2)

    async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
        return await self.chunk((), level=level, budget=budget + len(tier))

    async def compress(self, source: Summary, *, level: Level, budget: int) -> Draft:
        raise ValueError("from inside")

    async def close(self) -> None:
        self.threads.append("closed")


async def test_a_summariser_that_computes_runs_in_a_thread_of_its_own() -> None:
    inner = Computing()
    summariser = InThread(inner)
    draft = await summariser.chunk((), level=Level.detailed, budget=7)
    assert draft.body.facts == ("detailed 7",)
    draft = await summariser.merge((), tier=Tier.merged, level=Level.detailed, budget=1)
    assert draft.body.facts == ("detailed 7",)
    with pytest.raises(ValueError, match="from inside"):
        await summariser.compress(cast("Summary", None), level=Level.detailed, budget=1)
    await summariser.close()
    first, second, last = inner.threads
    assert first == second != threading.current_thread().name
    assert last == "closed"


async def test_a_summariser_that_waits_does_not_belong_into_the_thread() -> None:
    class Never:
        def __await__(self) -> Any:
            yield

    summariser = InThread(Computing(Never()))
    with pytest.raises(RuntimeError, match="waited"):
        await summariser.chunk((), level=Level.detailed, budget=7)
    await summariser.close()
