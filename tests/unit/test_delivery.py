"""The shortcut for deliveries keeps the meaning of Faust's `wait_first`, and makes no task where nothing waits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from faust.transport.drivers.aiokafka import Consumer as FaustConsumer

from services.settings import Settings
from streams.runtime import app as faust_app
from streams.runtime.consumer import Consumer
from streams.runtime.delivery import start


@pytest.fixture
async def consumer() -> Consumer:
    """A consumer that is not connected to anything."""
    app = faust_app.create("afterturn-delivery", Settings())
    app.finalize()
    consumer = app.consumer
    assert isinstance(consumer, Consumer)
    return consumer


async def _turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


class Buffer:
    """Where records are delivered to; full until the test makes room."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.content: list[int] = []
        self.cancelled: list[int] = []

    async def deliver(self, item: int) -> None:
        try:
            # twice: the rest of a delivery may wait more than once
            await self.room.wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.cancelled.append(item)
            raise
        self.content.append(item)

    async def put(self, item: int) -> None:
        self.content.append(item)


async def test_a_delivery_that_need_not_wait_makes_no_task(consumer: Consumer) -> None:
    buffer, suspended = Buffer(), asyncio.Event()
    before = asyncio.all_tasks()
    step = consumer.wait_first(buffer.put(1), suspended.wait())
    # driven by hand: it ends without one turn of the event loop
    with pytest.raises(StopIteration):
        step.send(None)
    assert buffer.content == [1]
    assert asyncio.all_tasks() == before


async def test_an_error_of_a_delivery_is_raised(consumer: Consumer) -> None:
    async def broken() -> None:
        raise KeyError("x")

    waiting = asyncio.Event().wait()
    with pytest.raises(KeyError):
        await consumer.wait_first(broken(), waiting)
    waiting.close()


async def test_a_delivery_that_waits_is_delivered_once_there_is_room(consumer: Consumer) -> None:
    buffer, suspended = Buffer(), asyncio.Event()
    fetcher = asyncio.create_task(consumer.wait_first(buffer.deliver(1), suspended.wait()))
    await _turns()
    assert not fetcher.done()
    buffer.room.set()
    results = await fetcher
    assert buffer.content == [1]
    assert not results.stopped
    assert len(results.done) == 1


async def test_a_suspension_cancels_a_delivery_that_waits(consumer: Consumer) -> None:
    buffer, suspended = Buffer(), asyncio.Event()
    fetcher = asyncio.create_task(consumer.wait_first(buffer.deliver(1), suspended.wait()))
    await _turns()
    suspended.set()
    await fetcher
    await _turns()
    assert buffer.cancelled == [1]
    # room that comes later is not for it: after the rebalance it is fetched again
    buffer.room.set()
    await _turns()
    assert buffer.content == []


async def test_the_end_of_the_consumer_cancels_a_delivery_that_waits(consumer: Consumer) -> None:
    buffer = Buffer()
    fetcher = asyncio.create_task(consumer.wait_first(buffer.deliver(1), asyncio.Event().wait()))
    await _turns()
    consumer._stopped.set()
    results = await fetcher
    assert results.stopped
    await _turns()
    assert buffer.cancelled == [1]


async def test_cancelling_the_fetcher_cancels_a_delivery_that_waits(consumer: Consumer) -> None:
    buffer = Buffer()
    fetcher = asyncio.create_task(consumer.wait_first(buffer.deliver(1), asyncio.Event().wait()))
    await _turns()
    fetcher.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetcher
    await _turns()
    assert buffer.cancelled == [1]


@pytest.mark.parametrize("shortcut", [True, False])
async def test_the_same_as_faust_alone(consumer: Consumer, shortcut: bool) -> None:
    def wait_first(*coros: Any) -> Any:
        return consumer.wait_first(*coros) if shortcut else FaustConsumer.wait_first(consumer, *coros)

    buffer, suspended = Buffer(), asyncio.Event()
    fetcher = asyncio.create_task(wait_first(buffer.deliver(1), suspended.wait()))
    await _turns()
    buffer.room.set()
    assert not (await fetcher).stopped
    buffer.room.clear()
    fetcher = asyncio.create_task(wait_first(buffer.deliver(2), suspended.wait()))
    await _turns()
    suspended.set()
    assert not (await fetcher).stopped
    await _turns()
    assert (buffer.content, buffer.cancelled) == ([1], [2])


async def test_the_rest_takes_what_it_waits_for_and_gives_back_the_result() -> None:
    loop = asyncio.get_running_loop()
    first: asyncio.Future[str] = loop.create_future()
    second: asyncio.Future[str] = loop.create_future()

    async def delivery() -> str:
        return await first + await second

    rest = start(delivery())
    assert rest is not None
    task = asyncio.create_task(rest)
    first.set_result("one ")
    await _turns()
    second.set_result("two")
    assert await task == "one two"


async def test_an_error_thrown_into_the_rest_can_be_handled_inside() -> None:
    async def delivery() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "cleaned up"

    rest = start(delivery())
    assert rest is not None
    task = asyncio.create_task(rest)
    await _turns()
    task.cancel()
    assert await task == "cleaned up"


async def test_a_failed_future_is_raised_at_the_place_that_waits_for_it() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def delivery() -> str:
        try:
            await future
        except OSError as error:
            return str(error)
        return "nothing"

    rest = start(delivery())
    assert rest is not None
    future.set_exception(OSError("gone"))
    assert await rest == "gone"
