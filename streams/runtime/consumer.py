"""Faust's consumer, with delivery, acknowledgements and shutdown of our own (docs/decisions/0007, 0015).

Why not Faust's own: version 0.15.3 commits past unfinished records (an off-by-one in `Consumer._new_offset`, pinned
down by tests/unit/test_faust_commit.py), waits without a limit for what is in flight, and makes a message, an event, four
tasks and some calls of sensors of every record.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from faust.transport.consumer import ensure_TP
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread as FaustConsumerThread
from faust.transport.drivers.aiokafka import Consumer as FaustConsumer
from faust.transport.drivers.aiokafka import Transport as FaustTransport
from faust.transport.drivers.aiokafka import ensure_aiokafka_TP
from faust.types import TP

from streams.runtime.acks import OrderedAcks

FETCH_WAIT_MS = 50
"""How long the broker may hold an empty fetch. Faust fixes 1,500: harmless on Apache Kafka, which answers as soon as
there is something, but Tansu does not look again before the time is over."""

FULL_WAIT = 1.0
"""Seconds after which the fetcher looks again although no buffer has told that it has room."""


class ConsumerThread(FaustConsumerThread):
    """Faust's thread around aiokafka's consumer, with our fetch wait."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one fetch brought for one partition: aiokafka's records, in order, and the generation they were read in.

    To Faust's fetcher, which hands it over as it is, it is one message with a topic, a key and an offset.
    """

    tp: TP
    generation: int
    records: Sequence[Any]

    @property
    def topic(self) -> str:
        """Of all records."""
        return str(self.tp.topic)

    @property
    def offset(self) -> int:
        """Of the first record."""
        return int(self.records[0].offset)


class Consumer(FaustConsumer):
    """Delivers what was fetched as it was fetched; commits what the ordered acks of each partition have released."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        deliver: Any = self._deliver
        self.callback = deliver
        self.acks: dict[TP, OrderedAcks] = {}
        self.quiesce: Any = None
        """Set by the runtime: `await quiesce()` ends or cancels what is in flight, within the deadline."""
        self.on_assigned: Callable[[], None] = lambda: None
        """Set by the runtime: called after each assignment."""
        self._buffer = self.app.conf.stream_buffer_maxsize
        self._room = asyncio.Event()

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def acks_of(self, tp: TP) -> OrderedAcks:
        """The acks of one partition in this assignment."""
        acks = self.acks.get(tp)
        if acks is None:
            acks = self.acks[tp] = OrderedAcks()
        return acks

    def fetched(self, tp: TP) -> tuple[int, int] | None:
        """When the last answer came about a partition (milliseconds since 1970), and its highwater then or later; None while
        there is none in this assignment."""
        client, each = self._thread._ensure_consumer(), ensure_aiokafka_TP(tp)
        try:
            # the time first: the fetching thread sets it last
            at, highwater = client.last_poll_timestamp(each), client.highwater(each)
        except AssertionError:
            # an assignment is being made
            return None
        return None if at is None or highwater is None else (at, highwater)

    def done_before(self, tp: TP) -> int | None:
        """The offset before which all is done: of this assignment, or as it was committed. None where nothing is known."""
        acks = self.acks.get(tp)
        position = acks.unfinished if acks is not None else None
        return self._committed_offset[tp] if position is None else position

    # delivery

    async def getmany(self, timeout: float) -> AsyncIterator[tuple[TP, Any]]:
        """What a fetch brought, a `Fetched` for each partition. Faust's own yields message by message."""
        fetched, _ = await self._wait_next_records(timeout)
        generation = self.app.consumer_generation_id
        if fetched and not self.flow_active:
            try:
                await self.perform_seek()
            except Exception as error:
                # the end of the suspension seeks once more
                self.log.warning("seek during a suspension: %r", error)
        for each, records in (fetched or {}).items():
            # where a suspension ends, Faust seeks back to what is committed
            if self.should_stop or not self.flow_active or self.app.consumer_generation_id != generation:
                return
            tp = ensure_TP(each)
            # the fetcher drops a message that is older than the last one, and would drop the records behind it as well
            read = self._read_offset[tp]
            if read is not None and records[0].offset < read:
                records = [record for record in records if record.offset >= read]
            if records:
                yield tp, Fetched(tp, generation, records)

    async def _deliver(self, fetched: Fetched) -> None:
        """Into the buffer of the agent's instance for this partition; waits for the end of a suspension."""
        await self.app.flow_control.acquire()
        conductor: Any = self.app.topics
        for channel in conductor._tp_index[fetched.tp]:
            queue = channel.queue
            queue.force_put_nowait(fetched)
            if _waiting(queue) >= self._buffer:
                self.on_buffer_full(fetched.tp)

    def taken(self, tp: TP, queue: Any) -> None:
        """To be called by an instance that has taken from its buffer: fetching goes on once half of it is free."""
        if tp in self._buffered_partitions and _waiting(queue) <= self._buffer // 2:
            self.on_buffer_drop(tp)
            self._room.set()

    async def _wait_next_records(self, timeout: float) -> tuple[Any, Any]:
        """Records of this assignment only.

        Faust looks at the generation after the fetch. A fetch that was under way during a rebalance would be taken for
        one of the new assignment, though it may begin behind the committed offset: what lies between would never be
        delivered, and be committed with it.
        """
        full = self.flow_active and bool(self._buffered_partitions)
        if full:
            self._room.clear()
            if not self._get_active_partitions():
                # Faust sleeps for a second when all buffers are full
                await self._wait_for_room(FULL_WAIT)
        generation = self.app.consumer_generation_id
        # a fetch is for the partitions that have room when it begins: one that waited for more of them would keep
        # those waiting that get room meanwhile, whose records are here already
        records, active = await super()._wait_next_records(0 if full else timeout)
        if full and not records:
            await self._wait_for_room(FETCH_WAIT_MS / 1000)
        if records and self.app.consumer_generation_id != generation:
            if self.assignment():
                await self.perform_seek()
            return {}, active
        return records, active

    async def _wait_for_room(self, seconds: float) -> None:
        """Until a buffer has room again, or a suspension begins."""
        await self.wait_first(self._room.wait(), self.suspend_flow.wait(), timeout=seconds)

    async def perform_seek(self) -> None:
        """Every partition back to what is committed, or to its beginning where nothing is yet.

        Faust throws fetched records away during a rebalance and seeks back for them; aiokafka seeks only where an offset
        is committed. Before a partition's first commit, what was thrown away would never be delivered.
        """
        committed = {ensure_TP(tp): offset or None for tp, offset in (await self.seek_to_committed()).items()}
        fresh = [tp for tp, offset in committed.items() if offset is None or offset < 0]
        if fresh:
            await self._thread.seek_to_beginning(*map(ensure_aiokafka_TP, fresh))
        for tp, offset in committed.items():
            self._read_offset[tp] = self._committed_offset[tp] = None if tp in fresh else offset

    # acknowledgements and shutdown

    def _filter_tps_with_pending_acks(self, topics: Any = None) -> Iterator[TP]:
        return (tp for tp, acks in list(self.acks.items()) if acks.position is not None)

    def _new_offset(self, tp: TP) -> int | None:
        acks = self.acks.get(tp)
        return acks.position if acks is not None else None

    async def wait_empty(self) -> None:
        """A rebalance or the end: what is in flight is finished or cancelled, then committed."""
        if self.quiesce is not None:
            await self.quiesce()
        # Faust skips a commit while another one runs, and that one may have begun before the last record was done
        await self.commit_and_end_transactions()
        await self.commit_and_end_transactions()

    def verify_event_path(self, now: float, tp: TP) -> None:
        """Faust's watch for partitions that stand still: not kept. It asks for a position that aiokafka does not have while
        an assignment is being made, and ends the worker with it; `lag_age_seconds` tells what it would log."""

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """The agents have their partitions."""
        await super().on_partitions_assigned(assigned, generation_id)
        self.on_assigned()

    async def on_partitions_revoked(self, revoked: Iterable[TP]) -> None:
        """A new assignment starts from what was committed, with no acks of the old one and empty buffers."""
        await super().on_partitions_revoked(set(revoked))
        self._buffered_partitions.clear()
        self.acks.clear()


def _waiting(queue: Any) -> int:
    return sum(len(fetched.records) for fetched in queue._queue)


class Transport(FaustTransport):
    """Faust's transport with our consumer."""

    Consumer = Consumer
