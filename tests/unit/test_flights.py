"""What is in flight: in order per key, parallel across keys, bounded, and ended within a deadline (promise 5)."""

from __future__ import annotations

import asyncio

import pytest

from streams.runtime.flights import Flights, Lanes


async def _turns(count: int = 20) -> None:
    """Let everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)


class Airport:
    """Lanes whose records end when the test says so."""

    def __init__(self, in_flight: int = 100) -> None:
        self.failures: list[BaseException] = []
        self.flights = Flights(self.failures.append)
        self.lanes = Lanes(in_flight)
        self.gates: dict[str, asyncio.Event] = {}
        self.running: list[str] = []
        self.ended: list[str] = []

    def enter(self, key: bytes | None, name: str, error: BaseException | None = None) -> asyncio.Task[None]:
        gate = self.gates[name] = asyncio.Event()

        async def work() -> None:
            self.running.append(name)
            try:
                await gate.wait()
                if error is not None:
                    raise error
            finally:
                self.running.remove(name)
            self.ended.append(name)

        def start(before: asyncio.Task[None] | None) -> asyncio.Task[None]:
            return self.flights.start(self.lanes.run(before, work))

        return self.lanes.enter(key, start)


async def test_one_key_in_order_other_keys_beside_it() -> None:
    airport = Airport()
    for name in ("a1", "a2", "b1", "a3", "b2"):
        airport.enter(name[:1].encode(), name)
    await _turns()
    assert airport.running == ["a1", "b1"]
    for name in ("a2", "a3", "b2"):
        airport.gates[name].set()
    await _turns()
    assert airport.running == ["a1", "b1"]
    airport.gates["b1"].set()
    await _turns()
    assert airport.ended == ["b1", "b2"]
    airport.gates["a1"].set()
    await _turns()
    assert airport.ended == ["b1", "b2", "a1", "a2", "a3"]


async def test_records_without_a_key_are_one_lane() -> None:
    airport = Airport()
    airport.enter(None, "1")
    airport.enter(None, "2")
    await _turns()
    assert airport.running == ["1"]
    airport.gates["1"].set()
    airport.gates["2"].set()
    await _turns()
    assert airport.ended == ["1", "2"]


async def test_no_more_than_the_bound_run() -> None:
    airport = Airport(in_flight=3)
    names = [f"{n}" for n in range(10)]
    for name in names:
        airport.enter(name.encode(), name)
    await _turns()
    assert len(airport.running) == 3
    for name in names:
        airport.gates[name].set()
        await _turns()
        assert len(airport.running) <= 3
    assert sorted(airport.ended) == names


async def test_one_that_waits_for_its_turn_holds_no_slot() -> None:
    airport = Airport(in_flight=2)
    for name in ("a1", "a2", "a3", "b1"):
        airport.enter(name[:1].encode(), name)
    await _turns()
    assert airport.running == ["a1", "b1"]


async def test_a_failure_stops_those_behind_it_and_no_others() -> None:
    airport = Airport()
    error = RuntimeError("broken")
    first = airport.enter(b"a", "a1", error)
    behind = [airport.enter(b"a", name) for name in ("a2", "a3")]
    other = airport.enter(b"b", "b1")
    await _turns()
    for gate in airport.gates.values():
        gate.set()
    await _turns()
    assert first.exception() is error
    assert all(task.cancelled() for task in behind)
    assert other.done()
    assert airport.ended == ["b1"]
    assert airport.failures == [error]


async def test_a_cancelled_one_stops_those_behind_it() -> None:
    airport = Airport()
    first = airport.enter(b"a", "a1")
    behind = airport.enter(b"a", "a2")
    await _turns()
    first.cancel()
    await _turns()
    assert behind.cancelled()
    assert airport.ended == []
    # a cancellation is a deadline, not a failure
    assert airport.failures == []


async def test_cancelling_one_that_waits_leaves_the_one_before_it_alone() -> None:
    airport = Airport()
    first = airport.enter(b"a", "a1")
    waiting = airport.enter(b"a", "a2")
    await _turns()
    waiting.cancel()
    await _turns()
    assert waiting.cancelled()
    assert not first.done()


async def test_a_lane_that_was_emptied_by_a_failure_can_be_used_again() -> None:
    airport = Airport()
    first = airport.enter(b"a", "a1")
    await _turns()
    first.cancel()
    await _turns()
    airport.enter(b"a", "a1 again")
    await _turns()
    assert airport.running == ["a1 again"]


async def test_slots_come_back_from_failures_and_cancellations() -> None:
    airport = Airport(in_flight=1)
    for n in range(5):
        task = airport.enter(b"a%d" % n, f"{n}", RuntimeError("broken") if n % 2 else None)
        await _turns()
        if n % 2:
            airport.gates[f"{n}"].set()
        else:
            task.cancel()
        await _turns()
    airport.enter(b"z", "last")
    await _turns()
    assert airport.running == ["last"]


async def test_lanes_forget_keys_that_are_done() -> None:
    airport = Airport()
    for n in range(50):
        airport.enter(b"%d" % n, f"{n}")
        airport.gates[f"{n}"].set()
    await _turns()
    assert len(airport.ended) == 50
    assert not airport.lanes._last
    assert len(airport.flights) == 0


async def test_landing_waits_for_what_ends_in_time() -> None:
    airport = Airport()
    airport.enter(b"a", "a1")
    airport.enter(b"a", "a2")
    await _turns()
    landing = asyncio.create_task(airport.flights.land(60.0))
    await _turns()
    assert not landing.done()
    airport.gates["a1"].set()
    airport.gates["a2"].set()
    assert await landing == 0
    assert airport.ended == ["a1", "a2"]


async def test_landing_cancels_what_does_not() -> None:
    airport = Airport()
    tasks = [airport.enter(b"a", "a1"), airport.enter(b"a", "a2"), airport.enter(b"b", "b1")]
    await _turns()
    airport.gates["b1"].set()
    await _turns()
    assert await airport.flights.land(0.0) == 2
    assert [task.cancelled() for task in tasks] == [True, True, False]
    assert len(airport.flights) == 0
    assert airport.failures == []


async def test_landing_waits_until_a_cancelled_one_has_cleaned_up() -> None:
    flights = Flights(lambda error: None)
    cleaned: list[str] = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.append("up")

    flights.start(work())
    await _turns()
    assert await flights.land(0.0) == 1
    assert cleaned == ["up"]


@pytest.mark.parametrize("error", [RuntimeError("broken"), KeyError("x")])
async def test_a_failure_is_told_and_taken_out_of_flight(error: Exception) -> None:
    told: list[BaseException] = []
    flights = Flights(told.append)

    async def work() -> None:
        raise error

    task = flights.start(work())
    await _turns()
    assert told == [error]
    assert task.exception() is error
    assert len(flights) == 0
