"""What was fetched reaches its agent as it was fetched, and stops at a full buffer and at a rebalance (promises 1, 2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from faust.transport.drivers.aiokafka import Consumer as FaustConsumer
from faust.types import TP

from schemas.delivery import Record
from services.failures import Poison
from services.metrics import Metrics
from services.settings import Settings
from services.work import DONE, Work
from streams.runtime.agent import Agent, AgentSpec, Batched
from streams.runtime.consumer import Consumer, Fetched
from streams.runtime.publisher import Publisher

TOPIC = "chat.turns.v1"
PLACE, OTHER = TP(TOPIC, 0), TP(TOPIC, 1)
BUFFER, LIMIT = 8, 5
GENERATION = 7


class Toy:
    """A batch handler that holds every batch until it is told, and writes down the offsets."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def handle(self, records: Sequence[Record]) -> Sequence[Work | Poison]:
        self.batches.append([record.offset for record in records])
        await self.gate.wait()
        return [DONE] * len(records)


@pytest.fixture
async def toy() -> Toy:
    return Toy()


@pytest.fixture
async def agent(toy: Toy) -> Agent:
    """An agent that is not connected to anything, with one buffer for each of two partitions, flowing."""
    settings = Settings(buffer=BUFFER)
    spec = AgentSpec("toy", TOPIC, Batched(toy.handle, LIMIT))
    agent = Agent(spec, settings, Publisher(settings), Metrics("toy"))
    agent.app.finalize()
    agent.app.consumer_generation_id = GENERATION
    agent.app.flow_control.resume()
    agent.consumer.resume_flow()
    agent.consumer._active_partitions = {PLACE, OTHER}
    for tp in (PLACE, OTHER):
        queue = agent.app.FlowControlQueue(maxsize=BUFFER, clear_on_resume=True)
        _index(agent)[tp] = (SimpleNamespace(queue=queue),)
    return agent


def _index(agent: Agent) -> dict[TP, Any]:
    """Faust's conductor knows the channels of each partition."""
    conductor: Any = agent.app.topics
    index: dict[TP, Any] = conductor._tp_index
    return index


def _queue(agent: Agent, tp: TP = PLACE) -> Any:
    [channel] = _index(agent)[tp]
    return channel.queue


def _records(*offsets: int, tp: TP = PLACE) -> list[Any]:
    return [
        SimpleNamespace(
            topic=tp.topic,
            partition=tp.partition,
            offset=offset,
            key=b"k",
            value=b"v",
            headers=(),
            timestamp=1_000,
        )
        for offset in offsets
    ]


def _fetched(*offsets: int, tp: TP = PLACE, generation: int = GENERATION) -> Fetched:
    return Fetched(tp, generation, _records(*offsets, tp=tp))


def _fetches(monkeypatch: pytest.MonkeyPatch, records: dict[TP, list[Any]]) -> None:
    async def fetch(self: FaustConsumer, timeout: float) -> tuple[Any, Any]:
        return records, set(records)

    monkeypatch.setattr(FaustConsumer, "_wait_next_records", fetch)


async def _got(consumer: Consumer) -> list[tuple[TP, list[int]]]:
    return [(tp, [each.offset for each in fetched.records]) async for tp, fetched in consumer.getmany(1.0)]


async def _turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


# from the broker to the buffer


async def test_a_fetch_is_handed_over_partition_by_partition(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fetches(monkeypatch, {PLACE: _records(3, 4, 9), OTHER: _records(1, tp=OTHER)})
    assert await _got(agent.consumer) == [(PLACE, [3, 4, 9]), (OTHER, [1])]


async def test_what_was_read_before_is_left_out_and_what_is_behind_it_is_not(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent.consumer._read_offset[PLACE] = 4
    _fetches(monkeypatch, {PLACE: _records(2, 3, 4, 5)})
    assert await _got(agent.consumer) == [(PLACE, [4, 5])]


@pytest.mark.parametrize("what", ["suspension", "generation"])
async def test_a_rebalance_between_two_partitions_ends_a_fetch(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    _fetches(monkeypatch, {PLACE: _records(0), OTHER: _records(0, tp=OTHER)})
    found = []
    async for tp, _ in agent.consumer.getmany(1.0):
        found.append(tp)
        if what == "suspension":
            agent.consumer.stop_flow()
        else:
            agent.app.consumer_generation_id += 1
    assert found == [PLACE]


async def test_what_is_fetched_during_a_suspension_is_sought_again(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeks: list[str] = []

    async def perform_seek() -> None:
        seeks.append("to committed")

    _fetches(monkeypatch, {PLACE: _records(0)})
    monkeypatch.setattr(agent.consumer, "perform_seek", perform_seek)
    agent.consumer.stop_flow()
    assert await _got(agent.consumer) == []
    assert seeks == ["to committed"]


async def test_a_delivery_waits_for_the_end_of_a_suspension(agent: Agent) -> None:
    agent.app.flow_control.suspend()
    delivery = asyncio.create_task(agent.consumer._deliver(_fetched(0)))
    await _turns()
    assert _queue(agent).empty()
    agent.app.flow_control.resume()
    await delivery
    assert _queue(agent).qsize() == 1


async def test_a_rebalance_cancels_a_delivery_that_waits(agent: Agent) -> None:
    consumer = agent.consumer
    agent.app.flow_control.suspend()
    fetcher = asyncio.create_task(
        consumer.wait_first(consumer._deliver(_fetched(0)), consumer.suspend_flow.wait())
    )
    await _turns()
    assert not fetcher.done()
    consumer.stop_flow()
    await fetcher
    await _turns()
    # after the rebalance it is fetched again
    agent.app.flow_control.resume()
    await _turns()
    assert _queue(agent).empty()


# the buffer


async def test_a_full_buffer_stops_the_fetching_of_its_partition_until_half_of_it_is_free(
    agent: Agent,
) -> None:
    consumer, queue = agent.consumer, _queue(agent)
    await consumer._deliver(_fetched(0, 1, 2, 3))
    assert consumer._active_partitions == {PLACE, OTHER}
    await consumer._deliver(_fetched(4, 5, 6, 7, 8))
    assert consumer._active_partitions == {OTHER}
    queue.get_nowait()
    consumer.taken(PLACE, queue)
    assert consumer._active_partitions == {OTHER}
    queue.get_nowait()
    consumer.taken(PLACE, queue)
    assert consumer._active_partitions == {PLACE, OTHER}


async def test_the_fetcher_goes_on_as_soon_as_one_of_all_full_buffers_has_room(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = agent.consumer
    asked: list[float | None] = []
    wait_first = FaustConsumer.wait_first

    async def patient(self: FaustConsumer, *coros: Any, timeout: float | None = None) -> Any:
        # no clock: it goes on because it is told
        asked.append(timeout)
        return await wait_first(self, *coros)

    monkeypatch.setattr(FaustConsumer, "wait_first", patient)
    _fetches(monkeypatch, {PLACE: _records(99)})
    for tp in (PLACE, OTHER):
        await consumer._deliver(_fetched(*range(BUFFER), tp=tp))
    fetching = asyncio.create_task(_got(consumer))
    await _turns()
    assert not fetching.done()
    _queue(agent).get_nowait()
    consumer.taken(PLACE, _queue(agent))
    assert await fetching == [(PLACE, [99])]
    assert len(asked) == 1


async def test_a_fetch_does_not_wait_for_some_partitions_while_others_get_room(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = agent.consumer
    asked: list[tuple[set[TP], float]] = []
    wait_first = FaustConsumer.wait_first

    async def patient(self: FaustConsumer, *coros: Any, timeout: float | None = None) -> Any:
        # no clock: it goes on because it is told
        return await wait_first(self, *coros)

    async def fetch(self: FaustConsumer, timeout: float) -> tuple[Any, Any]:
        asked.append((set(self._get_active_partitions()), timeout))
        return ({PLACE: _records(99)} if PLACE in asked[-1][0] else {}), asked[-1][0]

    monkeypatch.setattr(FaustConsumer, "wait_first", patient)
    monkeypatch.setattr(FaustConsumer, "_wait_next_records", fetch)
    await consumer._deliver(_fetched(*range(BUFFER)))
    fetching = asyncio.create_task(_got(consumer))
    await _turns()
    # nothing came for the other one: it neither waits in the fetch, where nothing would wake it, nor asks again and again
    assert asked == [({OTHER}, 0)]
    _queue(agent).get_nowait()
    consumer.taken(PLACE, _queue(agent))
    assert await fetching == []
    assert await _got(consumer) == [(PLACE, [99])]
    assert asked[1] == ({PLACE, OTHER}, 1.0)


async def test_a_suspension_ends_the_wait_for_room(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = agent.consumer
    _fetches(monkeypatch, {})
    for tp in (PLACE, OTHER):
        await consumer._deliver(_fetched(*range(BUFFER), tp=tp))
    fetching = asyncio.create_task(_got(consumer))
    await _turns()
    assert not fetching.done()
    consumer.stop_flow()
    assert await fetching == []


async def test_buffers_of_an_old_assignment_are_not_taken_for_full(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = agent.consumer

    async def revoked(tps: set[TP]) -> None:
        agent.app.flow_control.clear()

    monkeypatch.setattr(consumer, "_on_partitions_revoked", revoked)
    await consumer._deliver(_fetched(*range(BUFFER)))
    await consumer.on_partitions_revoked({PLACE, OTHER})
    assert _queue(agent).empty()
    # an instance that had taken something before the rebalance tells it now
    consumer.taken(PLACE, _queue(agent))
    assert consumer._active_partitions == set()


# from the buffer to the handler


async def _instance(agent: Agent) -> tuple[asyncio.Task[None], list[str]]:
    ends: list[str] = []
    channel = SimpleNamespace(queue=_queue(agent), on_stop_iteration=lambda: ends.append("ended"))
    stream: Any = SimpleNamespace(channel=channel)
    return asyncio.create_task(agent._instance(stream)), ends


async def test_what_has_arrived_is_handled_together_up_to_the_limit(agent: Agent, toy: Toy) -> None:
    queue = _queue(agent)
    for fetched in (_fetched(0, 1), _fetched(2), _fetched(3, 4, 5, 6), _fetched(7)):
        queue.force_put_nowait(fetched)
    instance, _ = await _instance(agent)
    await _turns()
    assert toy.batches == [[0, 1, 2, 3, 4], [5, 6], [7]]
    assert agent.consumer.acks_of(PLACE).position == 8
    instance.cancel()


async def test_records_of_an_old_generation_are_not_handled(agent: Agent, toy: Toy) -> None:
    queue = _queue(agent)
    old, new = GENERATION - 1, GENERATION
    queue.force_put_nowait(_fetched(5, 6, generation=old))
    queue.force_put_nowait(_fetched(7, generation=old))
    instance, _ = await _instance(agent)
    await _turns()
    queue.force_put_nowait(_fetched(5, generation=new))
    queue.force_put_nowait(_fetched(8, generation=old))
    await _turns()
    assert toy.batches == [[5]]
    instance.cancel()


async def test_what_comes_behind_records_of_an_old_generation_is_handled(agent: Agent, toy: Toy) -> None:
    queue = _queue(agent)
    queue.force_put_nowait(_fetched(5, 6, generation=GENERATION - 1))
    queue.force_put_nowait(_fetched(4, 5))
    instance, _ = await _instance(agent)
    await _turns()
    assert toy.batches == [[4, 5]]
    instance.cancel()


async def test_a_rebalance_between_two_parts_of_what_was_taken_leaves_the_second(
    agent: Agent, toy: Toy
) -> None:
    toy.gate.clear()
    _queue(agent).force_put_nowait(_fetched(*range(LIMIT + 2)))
    instance, _ = await _instance(agent)
    await _turns()
    agent.app.flow_control.suspend()
    toy.gate.set()
    await _turns()
    assert toy.batches == [list(range(LIMIT))]
    # what the broker delivers again
    agent.app.consumer_generation_id += 1
    agent.app.flow_control.resume()
    _queue(agent).force_put_nowait(_fetched(5, 6, generation=GENERATION + 1))
    await _turns()
    assert toy.batches == [list(range(LIMIT)), [5, 6]]
    instance.cancel()


async def test_an_instance_that_faust_ends_gives_its_partition_up(agent: Agent, toy: Toy) -> None:
    instance, ends = await _instance(agent)
    await _turns()
    _queue(agent)._throw(StopAsyncIteration())
    await instance
    assert ends == ["ended"]


async def test_one_that_is_ended_while_it_takes_what_has_arrived_handles_nothing(
    agent: Agent, toy: Toy
) -> None:
    toy.gate.clear()
    queue = _queue(agent)
    queue.force_put_nowait(_fetched(0))
    instance, ends = await _instance(agent)
    await _turns()
    queue.force_put_nowait(_fetched(1))
    queue._throw(StopAsyncIteration())
    toy.gate.set()
    await instance
    assert (toy.batches, ends) == ([[0]], ["ended"])
