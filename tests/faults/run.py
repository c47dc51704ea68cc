"""One run put together: stores, topics, model, workers; publishing at a pace, waiting for the end, checking."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError
from redis.asyncio import Redis

from services.settings import Settings
from streams.drain import drain
from tests import cli
from tests.faults import check, journal, ledger, memories, model, state, workers
from tests.faults.load import PRICES, Load
from tests.faults.mind import Mind
from tests.faults.progress import Progress, watched
from tests.faults.trouble import CHANGES, CHUNKS, COMMANDS, SUMMARIES, TURNS, USAGE, Planned
from tests.stack import until

SESSION_SECONDS = 6
IN_FLIGHT = 16
_STEPS_A_SECOND = 20
TOPICS = (TURNS, CHUNKS, SUMMARIES, USAGE, COMMANDS, CHANGES)


@dataclass
class Run:
    """What runs, and what has been published so far: `planted` by place in the log."""

    bootstrap: str
    redis_url: str
    folder: Path
    environment: Mapping[str, str]
    model: model.Model
    workers: workers.Workers
    progress: Progress
    published: int = 0
    planted: dict[tuple[str, int, int], Planned] = field(default_factory=dict)
    entries: dict[str, list[journal.Entry]] = field(default_factory=dict)
    booked: ledger.Booked | None = None
    calls: check.Calls | None = None
    minds: Mapping[str, Mind] = field(default_factory=dict)

    async def publish(self, load: Load, seconds: float) -> None:
        """All records in order, over about so many seconds, each confirmed."""
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all", linger_ms=1)
        await producer.start()
        try:
            started, size = time.monotonic(), max(1, int(len(load.records) / seconds / _STEPS_A_SECOND))
            for at in range(0, len(load.records), size):
                due = started + seconds * at / len(load.records)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                await self._publish(producer, load.records[at : at + size])
        finally:
            await producer.stop()

    async def _publish(self, producer: AIOKafkaProducer, records: list[Planned]) -> None:
        confirmed = [await producer.send(r.topic, key=r.key, value=r.value) for r in records]
        for record, meta in zip(records, await asyncio.gather(*confirmed), strict=True):
            self.published += 1
            if record.reason is not None:
                self.planted[meta.topic, meta.partition, meta.offset] = record

    async def publish_patiently(self, load: Load, seconds: float) -> None:
        """One record after the other, each again until it is confirmed: as a frontend does while the broker restarts."""
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, acks="all")
        await producer.start()
        try:
            started = time.monotonic()
            for at, record in enumerate(load.records):
                await asyncio.sleep(max(0.0, started + seconds * at / len(load.records) - time.monotonic()))
                await _confirmed(producer, record)
                self.published += 1
        finally:
            await producer.stop()

    async def drained(self, deadline: float) -> None:
        """Until no group is behind. Raises AssertionError with the lags, or with the log of a worker that ended."""
        lags: dict[str, int] = {}

        def report(left: dict[str, int]) -> None:
            lags.update(left)
            self.workers.check_running()

        settings = Settings(kafka=self.bootstrap, redis=self.redis_url)
        assert await drain(settings, deadline, report), f"after {deadline:g} s the lags are {lags}"

    async def stopped(self) -> None:
        """SIGTERM to all workers; each ends with 0."""
        codes = await self.workers.stop()
        assert set(codes.values()) == {0}, f"{codes}\n{self.workers.logged()[-3_000:]}"

    async def wrong(self, load: Load) -> list[str]:
        """Everything that is not as it has to be; after the end."""
        self.entries = await journal.read(self.bootstrap)
        good = {topic: self.good(topic) for topic in TOPICS}
        assert (
            not {(e.topic, e.partition, e.offset) for all in good.values() for e in all} & self.planted.keys()
        )
        events = {
            topic: [e.event for e in good[topic] if e.value is not None]
            for topic in (CHUNKS, SUMMARIES, USAGE)
        }
        closed = {chunk["id"]: chunk for chunk in events[CHUNKS]}
        saved = {event["id"]: event for event in events[SUMMARIES]}
        stories, found = load.stories, []
        there = [story for story in stories.values() if not story.deleted]
        async with Redis.from_url(self.redis_url) as redis:
            ids = await state.chats(redis)
            if ids != sorted(stories):
                found.append(f"{len(ids)} chats of {len(stories)}")
            for story in (story for story in stories.values() if story.deleted):
                found += check.deleted(story, await state.keys_of(redis, story.name), _tombstones(good))
            chats = [await state.read(redis, story.name) for story in there if story.name in ids]
            kept, contents = await memories.read(redis), await state.everything(redis)
        for chat in chats:
            story = stories[chat.id]
            found += check.messages(chat, story)
            found += check.chunks(chat, story, closed)
            found += check.summaries(chat, story)
        found += check.announced(chats, stories, saved.values())
        self.calls = check.Calls(self.model.calls, chats, stories, closed.values(), saved.values())
        found += self.calls.check()
        wrong, self.minds = memories.wrong(good, kept, stories, load.commands)
        found += wrong
        found += check.nowhere(contents, there, self.minds.values())
        letters = [entry for topic, all in self.entries.items() if topic.endswith(".dlq") for entry in all]
        # where a chat was deleted, its dead letters have tombstones as well
        letters = [letter for letter in letters if letter.headers]
        found += check.dead_letters(letters, self.planted)
        if (self.folder / "clickhouse").is_dir():
            self.booked = await asyncio.to_thread(ledger.read, self.folder / "clickhouse")
            found += ledger.check(self.booked, events[USAGE], load)
        return found

    @property
    def repeated(self) -> int:
        """Calls of the model beyond what chunks and merges were for; after `wrong`."""
        assert self.calls is not None
        return self.calls.repeated

    def good(self, topic: str) -> list[journal.Entry]:
        """Records of a topic that are not planted poison."""
        return [
            entry
            for entry in self.entries[topic]
            if (entry.topic, entry.partition, entry.offset) not in self.planted
        ]

    async def audited(self) -> dict[str, object]:
        """What `afterturn audit` says of the stores at rest."""
        ended = await cli.run("audit", "--at-rest", "--json", **self.environment)
        assert ended.out, ended.err
        report: dict[str, object] = json.loads(ended.out)
        return report

    def redelivered(self) -> Counter[str]:
        """Records that are in a topic again under the same id, and dead letters that are there twice, by topic."""
        again: Counter[str] = Counter()
        for topic in (CHUNKS, SUMMARIES, USAGE, CHANGES):
            ids = [entry.event["id"] for entry in self.good(topic) if entry.value is not None]
            again[topic] = len(ids) - len(set(ids))
        again["dead letters"] = sum(
            sum(bool(entry.headers) for entry in all)
            for name, all in self.entries.items()
            if name.endswith(".dlq")
        ) - len(self.planted)
        return again


def _tombstones(entries: Mapping[str, list[journal.Entry]]) -> dict[str, set[str]]:
    """Chats with a tombstone, by topic."""
    return {
        topic: {(entry.key or b"").decode() for entry in entries[topic] if entry.value is None}
        for topic in (TURNS, CHUNKS, SUMMARIES)
    }


async def _confirmed(producer: AIOKafkaProducer, record: Planned) -> None:
    async def sent() -> bool:
        try:
            await producer.send_and_wait(record.topic, key=record.key, value=record.value)
        except KafkaError:
            return False
        return True

    await until(sent, "the broker confirms a record", 60)


@asynccontextmanager
async def opened(
    bootstrap: str,
    redis_url: str,
    folder: Path,
    seed: int,
    count: Mapping[str, int],
    **environment: str,
) -> AsyncIterator[Run]:
    """Migrated stores and running workers. `environment` is added to the workers' settings."""
    logs, prices = folder / "workers", folder / "prices.yaml"
    logs.mkdir()
    prices.write_text(PRICES)
    async with AsyncExitStack() as stack:
        endpoint = await stack.enter_async_context(model.serving(seed))
        settings = {
            "AFTERTURN_KAFKA": bootstrap,
            "AFTERTURN_REDIS": redis_url,
            "AFTERTURN_CLICKHOUSE": f"chdb:{folder / 'clickhouse'}",
            "AFTERTURN_PRICES": str(prices),
            "AFTERTURN_SUMMARY_MODEL": model.MODEL,
            "OPENAI_BASE_URL": endpoint.url,
            "OPENAI_API_KEY": "none",
            "AFTERTURN_IN_FLIGHT": str(IN_FLIGHT),
            "AFTERTURN_SESSION_TIMEOUT": str(SESSION_SECONDS),
            "PYTHONUNBUFFERED": "1",
            **environment,
        }
        migrated = await cli.run("migrate", **settings)
        assert migrated.code == 0, migrated.err
        progress = await stack.enter_async_context(watched(bootstrap))
        running = await stack.enter_async_context(workers.running(settings, logs, count))
        yield Run(bootstrap, redis_url, folder, settings, endpoint, running, progress)


def number(name: str, default: int) -> int:
    """A size of the run from the environment."""
    return int(os.environ.get(f"AFTERTURN_TEST_{name}", default))
