"""The promises of the runtime on both brokers: order, acknowledgements, dead letters, rebalances, shutdown."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest
from aiokafka import AIOKafkaProducer

from schemas.delivery import Outgoing, Record, Topics
from services.failures import Fatal, Poison
from services.work import DONE, Work
from streams.runtime.agent import Agent, Batched, Keyed
from streams.runtime.publisher import BATCH_FROM, Publisher
from tests.integration.agents import (
    DEAD,
    NAME,
    TOPIC,
    Workers,
    committed,
    dead_letters,
    produce,
    publisher,
    workers,
)
from tests.stack import Broker, until


@pytest.fixture
async def group(broker: Broker) -> AsyncIterator[Workers]:
    """Workers on the broker of the test."""
    async with publisher(broker) as publishes, workers(broker, publishes) as started:
        yield started


class Toy:
    """Handles records one by one or in batches, holds the values of `hold` until told, and writes down what it did."""

    def __init__(self, hold: Sequence[bytes] = ()) -> None:
        self.hold = set(hold)
        self.gate = asyncio.Event()
        self.started: list[bytes] = []
        self.done: list[bytes] = []
        self.cancelled: list[bytes] = []
        self.together = 0

    async def keyed(self, record: Record) -> Work:
        await self._one(record)
        return DONE

    async def batched(self, records: Sequence[Record]) -> Sequence[Work | Poison]:
        for record in records:
            await self._one(record)
        return [DONE] * len(records)

    async def _one(self, record: Record) -> None:
        value = record.value or b""
        self.started.append(value)
        self.together = max(self.together, len(self.started) - len(self.done) - len(self.cancelled))
        if value in self.hold:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.append(value)
                raise
        self.done.append(value)

    async def has_done(self, values: Sequence[bytes]) -> None:
        async def all_of_them() -> bool:
            return set(values) <= set(self.done)

        await until(all_of_them, "all records are handled", 60)

    async def has_started(self, values: Sequence[bytes]) -> None:
        async def all_of_them() -> bool:
            return set(values) <= set(self.started)

        await until(all_of_them, "all records have been started")


def _values(count: int, name: str = "v") -> list[bytes]:
    return [b"%s%d" % (name.encode(), n) for n in range(count)]


async def _suspended(agent: Agent) -> None:
    async def holds() -> bool:
        return not agent.app.flow_control.is_active()

    await until(holds, "the rebalance has reached the worker")


async def test_in_order_per_key_and_in_parallel_across_keys(group: Workers, broker: Broker) -> None:
    keys = [f"k{n}".encode() for n in range(8)]
    firsts = [key + b":0" for key in keys]
    records = [(key, key + b":%d" % n) for n in range(6) for key in keys]
    toy = Toy(hold=firsts)
    await produce(broker, records)
    await group.start(Keyed(toy.keyed))
    await toy.has_started(firsts)
    # the first of every key is in flight, and nothing has overtaken it
    assert sorted(toy.started) == sorted(firsts)
    toy.gate.set()
    await toy.has_done([value for _, value in records])
    for key in keys:
        assert [v for v in toy.done if v.startswith(key + b":")] == [key + b":%d" % n for n in range(6)]


async def test_no_more_in_flight_than_the_setting(group: Workers, broker: Broker) -> None:
    values = _values(60)
    toy = Toy(hold=values)
    await produce(broker, [(value, value) for value in values])
    await group.start(Keyed(toy.keyed), in_flight=5)

    async def five() -> bool:
        return len(toy.started) == 5

    await until(five, "five are in flight")
    toy.gate.set()
    await toy.has_done(values)
    assert toy.together == 5


async def test_what_is_committed_never_passes_what_is_in_flight(group: Workers, broker: Broker) -> None:
    values = _values(20)
    toy = Toy(hold=[values[5]])
    await produce(broker, [(value, value) for value in values], partition=0)
    first = await group.start(Keyed(toy.keyed))
    await toy.has_done([value for value in values if value != values[5]])
    await first.consumer.commit()
    assert await committed(broker) == 5
    await group.kill(first)
    assert toy.cancelled == [values[5]]
    assert await committed(broker) == 5
    toy.gate.set()
    await group.start(Keyed(toy.keyed))
    await toy.has_done(values)
    assert Counter(toy.done)[values[5]] == 1
    assert max(Counter(toy.done).values()) <= 2


async def test_poison_goes_to_the_dead_letters_untouched(group: Workers, broker: Broker) -> None:
    toy = Toy()

    async def handle(record: Record) -> Work:
        if record.value is None or b"\xff" in record.value:
            raise Poison("value: wrong")
        return await toy.keyed(record)

    await produce(
        broker, [(b"k", b"good"), (b"k", b"\xff\x00bad"), (None, None), (b"k", b"also")], partition=3
    )
    agent = await group.start(Keyed(handle))
    await toy.has_done([b"good", b"also"])
    bad, empty = sorted(await dead_letters(broker, 2), key=lambda letter: letter.value is None)
    assert (bad.key, bad.value) == (b"k", b"\xff\x00bad")
    assert (empty.key, empty.value) == (None, None)
    about = dict(bad.headers)
    assert about["x"] == b"\xff"
    assert [
        about[f"afterturn-{name}"] for name in ("kind", "reason", "agent", "topic", "partition", "offset")
    ] == [
        b"poison",
        b"value: wrong",
        NAME.encode(),
        TOPIC.encode(),
        b"3",
        b"1",
    ]
    await group.stop(agent)
    assert await committed(broker, 3) == 4


async def test_many_dead_letters_stop_the_worker(group: Workers, broker: Broker) -> None:
    async def handle(records: Sequence[Record]) -> Sequence[Work | Poison]:
        return [Poison("value: wrong") for _ in records]

    values = _values(30)
    await produce(broker, [(value, value) for value in values], partition=0)
    agent = await group.start(Batched(handle, limit=200), dead_letter_run=10)
    error = await asyncio.wait_for(asyncio.shield(agent.failed), 20)
    assert isinstance(error, Fatal)
    assert "11 dead letters in a row on partition 0" in str(error)
    await group.stop(agent)
    # the record that stopped it, and what is behind it, will be delivered again; what is a dead letter is one once
    assert await committed(broker) == 10
    again = await group.start(Batched(handle, limit=200), dead_letter_run=10)
    await asyncio.wait_for(asyncio.shield(again.failed), 20)
    await group.stop(again)
    assert await committed(broker) == 20
    assert sorted(record.value for record in await dead_letters(broker, 20)) == sorted(values[:20])


async def test_an_unexpected_failure_of_ours_stops_the_worker_without_an_ack(
    group: Workers, broker: Broker
) -> None:
    async def handle(record: Record) -> Work:
        raise Fatal("another version of the store")

    await produce(broker, [(b"k", b"v")], partition=0)
    agent = await group.start(Keyed(handle))
    error = await asyncio.wait_for(asyncio.shield(agent.failed), 20)
    assert str(error) == "another version of the store"
    await group.stop(agent)
    assert await committed(broker) <= 0


class Hesitant:
    """A publisher whose broker confirms when the test says so."""

    def __init__(self, real: Publisher) -> None:
        self.real = real
        self.asked = asyncio.Event()
        self.gate = asyncio.Event()

    async def publish(self, records: Sequence[Outgoing]) -> None:
        self.asked.set()
        await self.gate.wait()
        await self.real.publish(records)

    async def forward(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]]
    ) -> None:
        await self.real.forward(topic, key, value, headers)


async def test_nothing_is_acknowledged_before_the_broker_has_confirmed(broker: Broker) -> None:
    async def handle(records: Sequence[Record]) -> Sequence[Work | Poison]:
        return [Work((Outgoing(Topics.SUMMARIES, b"k", record.value or b""),)) for record in records]

    await produce(broker, [(b"k", b"v")], partition=0)
    async with publisher(broker) as real:
        hesitant = Hesitant(real)
        async with workers(broker, hesitant) as group:
            agent = await group.start(Batched(handle, limit=10))
            await asyncio.wait_for(hesitant.asked.wait(), 20)
            await agent.consumer.commit()
            assert await committed(broker) <= 0
            hesitant.gate.set()

            async def released() -> bool:
                return any(acks.position == 1 for acks in agent.consumer.acks.values())

            await until(released, "the record is acknowledged")
            await agent.consumer.commit()
            assert await committed(broker) == 1


@pytest.mark.parametrize("count", [1, BATCH_FROM])
async def test_headers_are_published_with_one_record_as_with_many(broker: Broker, count: int) -> None:
    headers = (("afterturn-by", "ü1".encode()), ("other", b""))
    async with publisher(broker) as publishes:
        await publishes.publish([Outgoing(DEAD, b"k", b"v", headers)] * count)
    assert [record.headers for record in await dead_letters(broker, count)] == [headers] * count


async def test_a_record_that_no_dead_letter_can_hold_does_not_stop_its_partition(
    group: Workers, broker: Broker
) -> None:
    async def handle(records: Sequence[Record]) -> Sequence[Work | Poison]:
        return [Poison("too large") if len(record.value or b"") > 2 else DONE for record in records]

    # the limits of broker and topic are those of what arrives, compressed
    producer = AIOKafkaProducer(
        bootstrap_servers=broker.bootstrap, compression_type="gzip", max_request_size=5_000_000
    )
    await producer.start()
    try:
        for value in (b"x" * 3_000_000, b"v"):
            await producer.send_and_wait(TOPIC, key=b"k", value=value, partition=0)
    finally:
        await producer.stop()
    agent = await group.start(Batched(handle, limit=10))
    [letter] = await dead_letters(broker, 1)
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers)["afterturn-left-out"] == b"3000000"
    assert dict(letter.headers)["afterturn-offset"] == b"0"
    await group.stop(agent)
    assert await committed(broker) == 2


async def test_a_clean_stop_finishes_what_is_in_flight_and_commits_it(group: Workers, broker: Broker) -> None:
    values = _values(5)
    toy = Toy(hold=values)
    await produce(broker, [(value, value) for value in values], partition=0)
    agent = await group.start(Keyed(toy.keyed))
    await toy.has_started(values)
    stopping = asyncio.create_task(group.stop(agent))
    await _suspended(agent)
    assert toy.done == []
    toy.gate.set()
    await stopping
    assert sorted(toy.done) == values
    assert await committed(broker) == 5


@pytest.mark.parametrize("kind", ["keyed", "batched"])
async def test_the_deadline_cancels_what_hangs_and_does_not_ack_it(
    group: Workers, broker: Broker, kind: str
) -> None:
    toy = Toy(hold=[b"v1"])
    agent = await group.start(
        Keyed(toy.keyed) if kind == "keyed" else Batched(toy.batched, limit=1), shutdown_deadline=0.2
    )
    await produce(broker, [(value, value) for value in _values(3)], partition=0)
    await toy.has_started([b"v1"])
    await toy.has_done([b"v0"])
    await asyncio.wait_for(group.stop(agent), 10)
    assert toy.cancelled == [b"v1"]
    assert not agent.failed.done()
    assert await committed(broker) == 1


@pytest.mark.parametrize("kind", ["keyed", "batched"])
async def test_a_rebalance_with_work_in_flight_and_a_full_buffer(
    group: Workers, broker: Broker, kind: str
) -> None:
    values = _values(600)
    # each partition has one that is held, and more behind it than its buffer takes
    records = [(value, value) for value in values]
    held = values[:40]
    toy = Toy(hold=held)

    def work() -> Keyed | Batched:
        return Keyed(toy.keyed) if kind == "keyed" else Batched(toy.batched, limit=10)

    await produce(broker, records)
    first = await group.start(work(), buffer=4, in_flight=4)

    async def busy() -> bool:
        return len(toy.started) >= 4

    await until(busy, "work is in flight")
    joining = asyncio.create_task(group.start(work(), buffer=4, in_flight=4))
    await _suspended(first)
    toy.gate.set()
    second = await joining
    await toy.has_done(values)
    # what was finished before the rebalance was committed in it
    assert len(toy.done) - len(values) <= 4
    assert toy.cancelled == []
    for agent in (first, second):
        assert not agent.failed.done()
        await group.stop(agent)


@pytest.mark.parametrize("kind", ["keyed", "batched"])
async def test_a_rebalance_that_cancels_what_hangs_hands_it_on(
    group: Workers, broker: Broker, kind: str
) -> None:
    values = _values(60)
    toy = Toy(hold=values)

    def work() -> Keyed | Batched:
        return Keyed(toy.keyed) if kind == "keyed" else Batched(toy.batched, limit=5)

    await produce(broker, [(value, value) for value in values])
    first = await group.start(work(), shutdown_deadline=0.2)

    async def busy() -> bool:
        return len(toy.started) >= 10

    await until(busy, "work is in flight")
    second = await group.start(work(), shutdown_deadline=0.2)
    assert len(toy.cancelled) >= 10
    toy.gate.set()
    # on the partitions that the first one kept as well
    await toy.has_done(values)
    assert Counter(toy.done).most_common(1)[0][1] == 1
    for agent in (first, second):
        assert not agent.failed.done()


@pytest.mark.parametrize("stuck", [0, 2])
async def test_measures_know_what_waits(group: Workers, broker: Broker, stuck: int) -> None:
    values = _values(5)
    toy = Toy(hold=values[stuck : stuck + 1])
    await produce(broker, [(b"k", value) for value in values], partition=0)
    agent = await group.start(Keyed(toy.keyed))
    await toy.has_started(values[: stuck + 1])

    def gauge(name: str, **labels: str) -> float | None:
        return agent.metrics.registry.get_sample_value(f"afterturn_{name}", {"agent": NAME, **labels})

    async def measured() -> bool:
        agent.measure()
        left = len(values) - stuck
        return gauge("in_flight_records") == left and gauge("lag_records", topic=TOPIC) == left

    await until(measured, "the one that is stuck waits, and those behind it")
    toy.gate.set()
    await toy.has_done(values)

    async def nothing_left() -> bool:
        agent.measure()
        return gauge("in_flight_records") == 0 and gauge("lag_records", topic=TOPIC) == 0

    await until(nothing_left, "no record waits")
