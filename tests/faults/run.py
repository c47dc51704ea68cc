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
from tests.faults import check, journal, ledger, model, state, workers
from tests.faults.load import CHUNKS, PRICES, SUMMARIES, TURNS, USAGE, Load, Planned
from tests.faults.progress import Progress, watched
from tests.stack import until

SESSION_SECONDS = 6
IN_FLIGHT = 16
_STEPS_A_SECOND = 20


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
        planted = {(entry.topic, entry.partition, entry.offset) for entry in self._good(None)}
        events = {topic: [entry.event for entry in self._good(topic)] for topic in (CHUNKS, SUMMARIES, USAGE)}
        closed: dict[str, dict[str, dict[str, object]]] = {}
        for chunk in events[CHUNKS]:
            closed.setdefault(chunk["chat"]["id"], {})[chunk["id"]] = chunk
        found: list[str] = []
        assert not planted & self.planted.keys()
        async with Redis.from_url(self.redis_url) as redis:
            ids = await state.chats(redis)
            if ids != sorted(load.messages):
                found.append(f"{len(ids)} chats of {len(load.messages)}")
            chats = [await state.read(redis, id) for id in ids if id in load.messages]
        needed = set()
        for chat in chats:
            found += check.messages(chat, load.messages[chat.id])
            found += check.chunks(chat, list(closed.get(chat.id, {}).values()))
            found += check.summaries(chat)
            needed |= check.asked(chat)
        found += check.announced(chats, events[SUMMARIES])
        if needed != self.model.calls.keys():
            found.append(f"the model was asked for {self.model.calls.keys() - needed} beside what was needed")
        letters = [entry for topic, all in self.entries.items() if topic.endswith(".dlq") for entry in all]
        found += check.dead_letters(letters, self.planted)
        if (self.folder / "clickhouse").is_dir():
            self.booked = await asyncio.to_thread(ledger.read, self.folder / "clickhouse")
            found += ledger.check(self.booked, events[USAGE], load)
        return found

    def _good(self, topic: str | None) -> list[journal.Entry]:
        """Records that are not planted poison, of one topic or of all that agents read."""
        wanted = (TURNS, CHUNKS, SUMMARIES, USAGE) if topic is None else (topic,)
        return [
            entry
            for name in wanted
            for entry in self.entries[name]
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
        for topic in (CHUNKS, SUMMARIES, USAGE):
            ids = [entry.event["id"] for entry in self._good(topic)]
            again[topic] = len(ids) - len(set(ids))
        again["dead letters"] = sum(
            len(all) for name, all in self.entries.items() if name.endswith(".dlq")
        ) - len(self.planted)
        return again


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
