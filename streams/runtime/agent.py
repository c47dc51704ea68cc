"""An agent: a topic, a consumer group, and what is done with each record. Two kinds, one set of promises."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from faust.types import TP, StreamT

from schemas.delivery import Record
from services.metrics import Metrics
from services.settings import Settings
from streams.runtime import app as faust_app
from streams.runtime.acks import OrderedAcks
from streams.runtime.consumer import Consumer, Fetched
from streams.runtime.flights import Flights, Lanes
from streams.runtime.handling import BatchHandler, Handling, KeyedHandler, Publishes
from streams.runtime.limits import DeadLetterLimits
from streams.runtime.retries import Retries
from streams.runtime.watermarks import Report, Watermarks

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Keyed:
    """Records of different keys in parallel, those of one key in order; for slow work such as model calls."""

    handle: KeyedHandler


@dataclass(frozen=True, slots=True)
class Batched:
    """What has arrived on a partition is handled together, in order; for quick work on a store."""

    handle: BatchHandler
    limit: int
    buffer: int | None = None


@dataclass(frozen=True, slots=True)
class AgentSpec:
    """`name` is the consumer group's last word and the dead letters' middle one."""

    name: str
    topic: str
    work: Keyed | Batched
    report: Report | None = None
    """Told again and again up to when its partitions are done."""


class Agent:
    """One running agent: a Faust app whose acknowledgements, retries and shutdown are ours."""

    def __init__(self, spec: AgentSpec, settings: Settings, publisher: Publishes, metrics: Metrics) -> None:
        self.spec = spec
        self.metrics = metrics
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.joined = asyncio.Event()
        """Set from the first assignment on, even one without partitions."""
        self._settings = settings
        self._flights = Flights(self._fail)
        self._lanes = Lanes(settings.in_flight)
        self._room = asyncio.Semaphore(settings.in_flight * 4)
        self._handling = Handling(
            spec.name,
            publisher,
            metrics,
            DeadLetterLimits(settings.dead_letter_run, settings.dead_letter_rate, time.monotonic),
            Retries(settings.retry_budget, on_retry=lambda: metrics.add("retried_total")),
        )
        buffer = spec.work.buffer if isinstance(spec.work, Batched) else None
        self.app = faust_app.create(f"afterturn-{spec.name}", settings, buffer=buffer)
        topic = self.app.topic(
            spec.topic,
            key_type=bytes,
            value_type=bytes,
            key_serializer="raw",
            value_serializer="raw",
            # Faust's own list of unacknowledged messages stays empty
            acks=False,
        )
        self.app.agent(topic, name=f"afterturn.{spec.name}", isolated_partitions=True)(self._instance)

    async def start(self) -> None:
        """Join the group; returns when the app is up, which may be before partitions are assigned."""
        self.consumer.quiesce = self._quiesce
        self.consumer.on_assigned = self.joined.set
        await self.app.start()
        self.app.add_future(self._watch())
        if self.spec.report is not None:
            self.app.add_future(Watermarks(self.consumer, self.spec.topic).keep_reporting(self.spec.report))

    async def stop(self) -> None:
        """Stop fetching, finish or cancel what is in flight, commit, leave the group."""
        await self.app.stop()

    @property
    def consumer(self) -> Consumer:
        """The app's consumer."""
        consumer = self.app.consumer
        assert isinstance(consumer, Consumer)
        return consumer

    @property
    def assigned(self) -> bool:
        """Whether this worker has partitions, or knows that there are none for it."""
        return self.joined.is_set() and not self.app.rebalancing

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_result(error)

    async def _watch(self) -> None:
        await self.app._crashed.wait()
        self._fail(self.app.crash_reason or RuntimeError("the Faust app crashed"))

    async def _quiesce(self) -> None:
        cancelled = await self._flights.land(self._settings.shutdown_deadline)
        if cancelled:
            log.warning("cancelled in flight", extra={"agent": self.spec.name, "records": cancelled})

    def measure(self) -> None:
        """Bring the gauges up to date (called when they are read)."""
        lag, oldest = 0, None
        for tp, acks in self.consumer.acks.items():
            if acks.unfinished is not None:
                lag += max(0, self._highwater(tp) - acks.unfinished)
            if acks.oldest is not None:
                oldest = acks.oldest if oldest is None else min(oldest, acks.oldest)
        self.metrics.set("lag_records", lag, topic=self.spec.topic)
        self.metrics.set("lag_age_seconds", max(0.0, time.time() - oldest / 1000) if oldest else 0.0)
        self.metrics.set("in_flight_records", sum(len(acks) for acks in self.consumer.acks.values()))

    def _highwater(self, tp: TP) -> int:
        return self.consumer.highwater(tp) or 0

    async def _instance(self, stream: StreamT[bytes]) -> None:
        """Faust runs one for each partition. What was fetched is in the queue of its channel, as it was fetched."""
        channel: Any = stream.channel
        take = self._batched if isinstance(self.spec.work, Batched) else self._keyed
        try:
            await take(channel.queue)
        except StopAsyncIteration:
            # so Faust ends an instance, by what it puts into the queue
            return
        finally:
            # as Faust's stream does when it is left: the partition has no instance any more
            channel.on_stop_iteration()

    def _current(self, fetched: Fetched) -> bool:
        """Whether these records may still be started: those of before a rebalance will be delivered again."""
        return (
            bool(self.app.flow_control.is_active()) and fetched.generation == self.app.consumer_generation_id
        )

    async def _batched(self, queue: Any) -> None:
        work = self.spec.work
        assert isinstance(work, Batched)
        while True:
            fetched: Fetched = await queue.get()
            records = list(fetched.records)
            # the rest of what has arrived, without a turn of the event loop for each
            while len(records) < work.limit and not queue.empty():
                more = queue.get_nowait()
                if more.generation == fetched.generation:
                    records += more.records
                elif not self._current(fetched):
                    # from before a rebalance: it is delivered again, and what came behind it is not
                    fetched, records = more, list(more.records)
            self.consumer.taken(fetched.tp, queue)
            for at in range(0, len(records), work.limit):
                if not self._current(fetched):
                    break
                task = self._flights.start(
                    self._flush(fetched.tp, records[at : at + work.limit], work.handle)
                )
                await _ended(task)
                if task.cancelled():
                    # by the deadline of a rebalance or of the end: what is delivered next comes from before it
                    break
                if task.exception() is not None:
                    # nothing behind it may take effect before it is delivered again
                    await _halt()

    async def _flush(self, tp: TP, fetched: Sequence[Any], handle: BatchHandler) -> None:
        acks = self.consumer.acks_of(tp)
        records = [_record(each) for each in fetched]
        for record in records:
            acks.take(record.offset, record.timestamp)
        started = time.monotonic()
        await self._handling.batch(
            records, handle, lambda some: acks.done([record.offset for record in some])
        )
        self.metrics.observe("handle_seconds", time.monotonic() - started)

    async def _keyed(self, queue: Any) -> None:
        work = self.spec.work
        assert isinstance(work, Keyed)
        while True:
            fetched: Fetched = await queue.get()
            self.consumer.taken(fetched.tp, queue)
            for each in fetched.records:
                await self._room.acquire()
                if not self._current(fetched):
                    # the group was rebalanced while this one waited for room
                    self._room.release()
                    break
                acks = self.consumer.acks_of(fetched.tp)
                record = _record(each)
                acks.take(record.offset, record.timestamp)
                task = self._lanes.enter(record.key, partial(self._launch, record, acks))
                task.add_done_callback(lambda _: self._room.release())
                if self.failed.done():
                    await _halt()

    def _launch(
        self, record: Record, acks: OrderedAcks, before: asyncio.Task[None] | None
    ) -> asyncio.Task[None]:
        return self._flights.start(self._one(record, acks, before))

    async def _one(self, record: Record, acks: OrderedAcks, before: asyncio.Task[None] | None) -> None:
        work = self.spec.work
        assert isinstance(work, Keyed)
        started = time.monotonic()
        await self._lanes.run(before, lambda: self._handling.single(record, work.handle))
        acks.done([record.offset])
        self.metrics.observe("handle_seconds", time.monotonic() - started)


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait for a task that may be cancelled by a deadline, without being cancelled with it."""
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        raise


async def _halt() -> None:
    """Until the worker stops."""
    await asyncio.Event().wait()


def _record(fetched: Any) -> Record:
    """From aiokafka's; its bytes as they are."""
    return Record(
        fetched.topic,
        fetched.partition,
        fetched.offset,
        fetched.key,
        fetched.value,
        tuple(fetched.headers or ()),
        fetched.timestamp or 0,
    )
