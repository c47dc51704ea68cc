"""The audit passes on what the agents really leave: their services on a real Redis and ledger, records by hand."""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from redis.asyncio import Redis

from schemas.chunks import ChunkClosed
from schemas.delivery import Outgoing, Position, Record, Topics
from schemas.summaries import SummarySaved
from schemas.turns import TurnRecorded
from services.audit.report import Check, Finding, Severity
from services.audit.service import audit
from services.credits.ledger import ClickHouseLedger
from services.credits.policy import parse
from services.failures import Poison
from services.summaries.extractive.summariser import Extractive
from services.summaries.service import Summaries
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from streams.credits import Credits
from tests.clickhouse import open_ledger

START = datetime(2026, 11, 30, tzinfo=UTC)


def words(text: str) -> int:
    """A token counter that needs no table."""
    return len(text.split())


class Pipeline:
    """All agents without a broker: what one publishes waits in a queue until the next takes it."""

    def __init__(self, redis: Redis, ledger: ClickHouseLedger) -> None:
        self.window = Window(redis, words, ChunkSize(10, 2_000))
        self.summaries = Summaries(redis, Extractive(words), words, clock=lambda: START)
        self.credits = Credits(ledger, parse({"default": [{"input": "0.001", "output": "0.004"}]}))
        self.queue: deque[Outgoing] = deque()
        self.uses: list[bytes] = []
        self.offset = 0

    async def _publish(self, work: Work | Poison) -> None:
        assert isinstance(work, Work)
        self.queue.extend(work.publish)
        if work.confirmed is not None:
            await work.confirmed()

    async def turn(self, event: TurnRecorded) -> None:
        delivered = Delivered(event, Position("epoch", 0, self.offset), int(START.timestamp() * 1000))
        self.offset += 1
        for work in await self.window.apply([delivered]):
            await self._publish(work)

    async def step(self, skip: Callable[[ChunkClosed], bool] = lambda chunk: False) -> None:
        record = self.queue.popleft()
        if record.topic == Topics.CHUNKS:
            chunk = ChunkClosed.model_validate_json(record.value)
            if not skip(chunk):
                await self._publish(await self.summaries.summarise(chunk))
        elif record.topic == Topics.SUMMARIES:
            await self._publish(await self.summaries.merge(SummarySaved.model_validate_json(record.value)))
        else:
            self.uses.append(record.value)

    async def book(self) -> None:
        for start in (0, 7):  # the second time most of them are there already
            records = [
                Record(Topics.USAGE, 0, offset, b"u1", value, (), 0)
                for offset, value in enumerate(self.uses[start:], start)
            ]
            assert all(isinstance(answer, Work) for answer in await self.credits.handle(records))


def turn(chat: str, number: int, dice: random.Random) -> TurnRecorded:
    said = " ".join(
        dice.choices(
            ["the", "ferry", "leaves", "Orre", "at", "seven", "and", "costs", "nine", "crowns"], k=40
        )
    )
    if number % 9 == 0:
        said = f"OOC: from now on chapter {number} is written in the past tense. {said}"
    return TurnRecorded.model_validate(
        {
            "type": "turn.recorded",
            "id": f"{chat}-e{number}",
            "at": START + timedelta(minutes=number),
            "chat": {"id": chat, "surface": "web", "characters": ["mira"]},
            "user": {"id": "u1"},
            "turn": {"id": f"t{number}"},
            "messages": [
                {"id": f"{chat}-u{number}", "role": "user", "author": "u1", "text": said},
                {
                    "id": f"{chat}-a{number}",
                    "role": "assistant",
                    "author": "mira",
                    "text": f"Mira says: {said}",
                },
            ],
            "model": {"name": "deepseek-v3.1"},
            "usage": {"prompt_tokens": 1000 + number, "completion_tokens": 90},
        }
    )


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[ClickHouseLedger]:
    _, ledger = await open_ledger(f"chdb:{tmp_path}/ledger")
    yield ledger
    await ledger.close()


@pytest.mark.rule("W6", "S2", "S5", "C2")
async def test_what_the_agents_leave_passes_at_every_moment(redis: Redis, ledger: ClickHouseLedger) -> None:
    pipeline, dice = Pipeline(redis, ledger), random.Random(7)
    findings: set[Finding] = set()
    for number in range(150):
        for chat in ("one", "two"):
            await pipeline.turn(turn(chat, number, dice))
        # the agents behind lag by a random amount, so that chunks pile up and are caught up with
        for _ in range(dice.randint(0, 4)):
            if pipeline.queue:
                await pipeline.step()
        if number % 10 == 0:
            findings |= set((await audit(redis, None)).findings)
    while pipeline.queue:
        await pipeline.step()
    await pipeline.book()
    assert findings == set()
    report = await audit(redis, ledger, at_rest=True)
    assert report.findings == []
    assert report.read.messages == 600
    assert report.read.archived_summaries > 0
    assert report.read.rules > 0
    assert report.read.bookings == len(pipeline.uses) > 300
    assert {json.loads(use)["stage"] for use in pipeline.uses} >= {"reply"}


@pytest.mark.rule("W6")
async def test_a_chunk_that_was_parked_is_a_gap_that_its_pending_chunk_fills(
    redis: Redis, ledger: ClickHouseLedger
) -> None:
    pipeline, dice = Pipeline(redis, ledger), random.Random(8)
    for number in range(120):
        await pipeline.turn(turn("one", number, dice))
    while pipeline.queue:
        await pipeline.step(skip=lambda chunk: chunk.index == 5)
    report = await audit(redis, None, at_rest=True)
    assert report.findings == []
    assert report.read.pending >= 10


async def test_a_death_before_the_confirmation_is_told_at_rest_only(
    redis: Redis, ledger: ClickHouseLedger
) -> None:
    pipeline, dice = Pipeline(redis, ledger), random.Random(9)
    event = turn("one", 0, dice)
    for number in range(40):
        event = turn("one", number, dice)
        delivered = Delivered(event, Position("epoch", 0, number), 0)
        await pipeline.window.apply([delivered])
    running, resting = [await audit(redis, None, at_rest=at_rest) for at_rest in (False, True)]
    assert (running.ok, resting.ok) == (True, False)
    assert [finding.check for finding in resting.findings] == [Check.outbox]
    warning = running.findings[0]
    assert warning.severity is Severity.warning
