"""Faust's consumer, with acknowledgements and shutdown of our own.

Why not Faust's own: version 0.15.3 commits past unfinished records (an off-by-one in `Consumer._new_offset`, pinned
down by tests/unit/test_faust_commit.py), and waits without a limit for what is in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

from faust.transport.consumer import ensure_TP
from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread as FaustConsumerThread
from faust.transport.drivers.aiokafka import Consumer as FaustConsumer
from faust.transport.drivers.aiokafka import Transport as FaustTransport
from faust.transport.drivers.aiokafka import ensure_aiokafka_TP
from faust.types import TP, ConsumerMessage
from mode.services import WaitResults

from streams.runtime.acks import OrderedAcks
from streams.runtime.delivery import start

FETCH_WAIT_MS = 50
"""How long the broker may hold an empty fetch. Faust fixes 1,500: harmless on Apache Kafka, which answers as soon as
there is something, but Tansu does not look again before the time is over."""


class ConsumerThread(FaustConsumerThread):
    """Faust's thread around aiokafka's consumer, with our fetch wait."""

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        consumer._fetch_max_wait_ms = FETCH_WAIT_MS
        return consumer


class Consumer(FaustConsumer):
    """Commits what the ordered acks of each partition have released."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.acks: dict[TP, OrderedAcks] = {}
        self.quiesce: Any = None
        """Set by the runtime: `await quiesce()` ends or cancels what is in flight, within the deadline."""
        self.on_assigned: Callable[[], None] = lambda: None
        """Set by the runtime: called after each assignment."""

    def _new_consumer_thread(self) -> ConsumerThread:
        return ConsumerThread(self, loop=self.loop, beacon=self.beacon)

    def acks_of(self, tp: TP) -> OrderedAcks:
        """The acks of one partition in this assignment."""
        acks = self.acks.get(tp)
        if acks is None:
            acks = self.acks[tp] = OrderedAcks()
        return acks

    def _to_message(self, tp: TP, record: Any) -> ConsumerMessage:
        message = super()._to_message(tp, record)
        # not one for Faust's own list of unacknowledged messages
        message.tracked = True
        return message

    async def _wait_next_records(self, timeout: float) -> tuple[Any, Any]:
        """Records of this assignment only.

        Faust looks at the generation after the fetch. A fetch that was under way during a rebalance would be taken for
        one of the new assignment, though it may begin behind the committed offset: what lies between would never be
        delivered, and be committed with it.
        """
        generation = self.app.consumer_generation_id
        records, active = await super()._wait_next_records(timeout)
        if records and self.app.consumer_generation_id != generation:
            if self.assignment():
                await self.perform_seek()
            return {}, active
        return records, active

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

    async def wait_first(self, *coros: Any, timeout: Any = None) -> WaitResults:
        """See streams/runtime/delivery.py. Called by the fetcher with a delivery and the wait for a suspension."""
        if len(coros) != 2 or timeout is not None or not isinstance(coros[0], Coroutine):
            return await super().wait_first(*coros, timeout=timeout)
        delivery, suspended = coros
        rest = start(delivery)
        if rest is None:
            suspended.close()
            return WaitResults([], [], self.should_stop)
        return await super().wait_first(rest, suspended)

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

    async def on_partitions_assigned(self, assigned: set[TP], generation_id: int = 0) -> None:
        """The agents have their partitions."""
        await super().on_partitions_assigned(assigned, generation_id)
        self.on_assigned()

    async def on_partitions_revoked(self, revoked: Iterable[TP]) -> None:
        """A new assignment starts from what was committed, with no acks of the old one."""
        await super().on_partitions_revoked(set(revoked))
        self.acks.clear()


class Transport(FaustTransport):
    """Faust's transport with our consumer."""

    Consumer = Consumer
