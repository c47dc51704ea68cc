"""The one place that decides when a record may be acknowledged (promises 1, 4 and 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from schemas.delivery import Outgoing, Record
from services.deadletters.policy import BY
from services.failures import Fatal, Poison, Transient
from services.metrics import Metrics
from services.work import DONE, REPEATED, Work
from streams.runtime.handling import Handling
from streams.runtime.limits import DeadLetterLimits
from streams.runtime.retries import Retries

SECRET = "what the user wrote"


class Publisher:
    """Writes down what is confirmed; fails as it is told to."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.published: list[Outgoing] = []
        self.dead: list[tuple[str, bytes | None, bytes | None, dict[str, bytes]]] = []
        self.errors: list[BaseException] = []
        self.gate: asyncio.Event | None = None

    async def publish(self, records: Sequence[Outgoing]) -> None:
        await self._broker()
        self.published.extend(records)
        self.log.append("published")

    async def forward(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]]
    ) -> None:
        await self._broker()
        assert len({name for name, _ in headers}) == len(headers)
        self.dead.append((topic, key, value, dict(headers)))
        self.log.append("dead")

    async def _broker(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        if self.gate is not None:
            await self.gate.wait()


class Bench:
    """A Handling with everything around it under the test's control. One second of its clock is one retry."""

    def __init__(self, run: int = 100) -> None:
        self.log: list[str] = []
        self.publisher = Publisher(self.log)
        self.metrics = Metrics("toy")
        self.now = 0.0

        async def sleep(_: float) -> None:
            self.now += 1
            await asyncio.sleep(0)

        retries = Retries(5.0, now=lambda: self.now, sleep=sleep, chance=lambda: 1.0)
        limits = DeadLetterLimits(run, 1_000, lambda: self.now)
        self.handling = Handling("toy", self.publisher, self.metrics, limits, retries)

    def count(self, name: str, **labels: str) -> float:
        value = self.metrics.registry.get_sample_value(f"afterturn_{name}", {"agent": "toy", **labels})
        return value or 0.0


@pytest.fixture
def bench() -> Bench:
    return Bench()


def _record(offset: int = 0, headers: tuple[tuple[str, bytes], ...] = ()) -> Record:
    return Record("topic.v1", 3, offset, b"key", b"\xff\x00" + SECRET.encode(), headers, 1_000)


def _raises(*errors: BaseException, result: Work = DONE) -> Callable[[Record], Awaitable[Work]]:
    left = list(errors)

    async def handle(record: Record) -> Work:
        if left:
            raise left.pop(0)
        return result

    return handle


def _work(bench: Bench) -> Work:
    async def trim() -> None:
        bench.log.append("trimmed")

    return Work((Outgoing("out.v1", b"k", b"1"), Outgoing("out.v1", b"k", b"2")), trim)


async def test_published_then_trimmed_then_acknowledged(bench: Bench) -> None:
    await bench.handling.single(_record(), _raises(result=_work(bench)))
    bench.log.append("acknowledged")
    assert bench.log == ["published", "trimmed", "acknowledged"]
    assert [record.value for record in bench.publisher.published] == [b"1", b"2"]
    assert (bench.count("done_total"), bench.count("published_total")) == (1, 2)


async def test_nothing_is_trimmed_or_acknowledged_before_the_broker_confirms(bench: Bench) -> None:
    bench.publisher.gate = asyncio.Event()
    task = asyncio.create_task(bench.handling.single(_record(), _raises(result=_work(bench))))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not task.done()
    assert bench.log == []
    bench.publisher.gate.set()
    await task
    assert bench.log == ["published", "trimmed"]


async def test_a_broker_that_is_away_is_waited_for(bench: Bench) -> None:
    bench.publisher.errors = [Transient("away", outage=True)] * 50
    await bench.handling.single(_record(), _raises(result=_work(bench)))
    assert bench.log == ["published", "trimmed"]


async def test_poison_is_a_dead_letter_with_its_bytes_untouched(bench: Bench) -> None:
    headers = (("traceparent", b"00-1"), ("afterturn-reason", b"of an earlier time"), ("x", b"\xff"))
    await bench.handling.single(_record(41, headers), _raises(Poison("messages.0.text: missing")))
    [(topic, key, value, about)] = bench.publisher.dead
    assert topic == "topic.v1.toy.dlq"
    assert (key, value) == (b"key", _record().value)
    assert about.pop("afterturn-at").endswith(b"+00:00")
    assert about == {
        "traceparent": b"00-1",
        "x": b"\xff",
        "afterturn-kind": b"poison",
        "afterturn-reason": b"messages.0.text: missing",
        "afterturn-agent": b"toy",
        "afterturn-topic": b"topic.v1",
        "afterturn-partition": b"3",
        "afterturn-offset": b"41",
    }
    assert bench.count("dead_total", kind="poison") == 1


async def test_a_dead_letter_is_confirmed_before_the_record_is_acknowledged(bench: Bench) -> None:
    bench.publisher.gate = asyncio.Event()
    bench.publisher.errors = [Transient("away", outage=True)] * 3
    task = asyncio.create_task(bench.handling.single(_record(), _raises(Poison("wrong"))))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not task.done()
    bench.publisher.gate.set()
    await task
    assert bench.log == ["dead"]


async def test_what_no_dead_letter_can_hold_is_left_out_and_told(bench: Bench) -> None:
    bench.publisher.errors = [Transient("away", outage=True), Poison("too large")]
    await bench.handling.single(_record(41, (("x", b"\xff"),)), _raises(Poison("value: has 9 bytes")))
    [(topic, key, value, about)] = bench.publisher.dead
    assert (topic, key, value) == ("topic.v1.toy.dlq", None, None)
    assert about["afterturn-left-out"] == str(len(_record().value or b"")).encode()
    assert (about["afterturn-reason"], about["afterturn-offset"]) == (b"value: has 9 bytes", b"41")
    assert "x" not in about
    assert bench.count("dead_total", kind="poison") == 1


async def test_what_fails_for_too_long_is_parked(bench: Bench) -> None:
    await bench.handling.single(_record(), _raises(*[Transient("the model is overloaded")] * 100))
    [(_, _, value, about)] = bench.publisher.dead
    assert value == _record().value
    assert (about["afterturn-kind"], about["afterturn-reason"]) == (b"parked", b"the model is overloaded")
    assert bench.now >= 5.0


async def test_what_works_at_last_is_no_dead_letter(bench: Bench) -> None:
    await bench.handling.single(_record(), _raises(Transient("busy"), Transient("busy"), result=REPEATED))
    assert bench.log == []
    assert (bench.count("done_total"), bench.count("repeated_total")) == (1, 1)


async def test_an_unexpected_error_is_named_by_its_place_and_never_quoted(bench: Bench) -> None:
    await bench.handling.single(_record(), _raises(KeyError(SECRET)))
    [(_, _, _, about)] = bench.publisher.dead
    assert about["afterturn-kind"] == b"unexpected"
    assert about["afterturn-reason"].startswith(b"KeyError at test_handling.py:")
    assert SECRET.encode() not in about["afterturn-reason"]


@pytest.mark.parametrize("error", [Fatal("the store has another version"), asyncio.CancelledError()])
async def test_fatal_and_cancellation_end_without_any_effect(bench: Bench, error: BaseException) -> None:
    with pytest.raises(type(error)):
        await bench.handling.single(_record(), _raises(error))
    assert bench.log == []
    assert bench.count("done_total") == 0


async def test_cancelled_while_it_waits_for_the_broker(bench: Bench) -> None:
    bench.publisher.gate = asyncio.Event()
    task = asyncio.create_task(bench.handling.single(_record(), _raises(result=_work(bench))))
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bench.log == []


class Batch:
    """A batch handler that fails where a record of `bad` is among others, and alone."""

    def __init__(self, bench: Bench, bad: dict[int, BaseException], poison: Sequence[int] = ()) -> None:
        self.bench, self.bad, self.poison = bench, bad, poison
        self.calls: list[list[int]] = []

    async def __call__(self, records: Sequence[Record]) -> Sequence[Work | Poison]:
        self.calls.append([record.offset for record in records])
        for record in records:
            if record.offset in self.bad:
                raise self.bad[record.offset]
        return [
            Poison(f"poison {record.offset}") if record.offset in self.poison else _work(self.bench)
            for record in records
        ]


def _offsets(bench: Bench) -> list[int]:
    return [int(about["afterturn-offset"]) for _, _, _, about in bench.publisher.dead]


async def test_poison_in_a_batch_is_buried_beside_the_good_ones(bench: Bench) -> None:
    batch = Batch(bench, {}, poison=(1, 3))
    await bench.handling.batch([_record(offset) for offset in range(4)], batch)
    assert batch.calls == [[0, 1, 2, 3]]
    assert bench.log == ["published", "trimmed", "trimmed", "dead", "dead"]
    assert _offsets(bench) == [1, 3]
    assert bench.count("done_total") == 4


@pytest.mark.parametrize(
    ("error", "kind"), [(ValueError(SECRET), b"unexpected"), (Transient("does not fit"), b"parked")]
)
async def test_one_record_that_spoils_a_batch_is_found(bench: Bench, error: Exception, kind: bytes) -> None:
    batch = Batch(bench, {2: error})
    await bench.handling.batch([_record(offset) for offset in range(4)], batch)
    alone = [call for call in batch.calls if len(call) == 1]
    assert [call for n, call in enumerate(alone) if n == 0 or call != alone[n - 1]] == [[0], [1], [2], [3]]
    assert _offsets(bench) == [2]
    assert bench.publisher.dead[0][3]["afterturn-kind"] == kind
    assert len(bench.publisher.published) == 2 * 3


async def test_fatal_in_a_batch_ends_it(bench: Bench) -> None:
    with pytest.raises(Fatal):
        await bench.handling.batch([_record(0), _record(1)], Batch(bench, {1: Fatal("stop")}))
    assert bench.log == []


async def test_an_answer_too_few_is_a_fault_and_publishes_nothing(bench: Bench) -> None:
    async def handle(records: Sequence[Record]) -> Sequence[Work | Poison]:
        return [_work(bench)]

    with pytest.raises(ValueError, match="zip"):
        await bench.handling.batch([_record(0), _record(1)], handle)
    assert bench.log == []


async def test_too_many_dead_letters_in_a_row_stop_the_worker() -> None:
    bench = Bench(run=3)

    async def handle(records: Sequence[Record]) -> Sequence[Work | Poison]:
        return [Poison("wrong") for _ in records]

    await bench.handling.batch([_record(offset) for offset in range(3)], handle)
    with pytest.raises(Fatal, match="4 dead letters in a row"):
        await bench.handling.batch([_record(3)], handle)
    assert _offsets(bench) == [0, 1, 2]


async def test_good_ones_between_them_end_the_row_inside_a_batch_too() -> None:
    bench = Bench(run=2)
    batch = Batch(bench, {}, poison=(0, 1, 3, 4, 6, 7))
    await bench.handling.batch([_record(offset) for offset in range(9)], batch)
    assert _offsets(bench) == [0, 1, 3, 4, 6, 7]


async def test_a_batch_with_one_good_record_is_not_the_end_of_a_row() -> None:
    bench = Bench(run=5)
    batch = Batch(bench, {}, poison=range(1, 100))
    with pytest.raises(Fatal, match="6 dead letters in a row"):
        await bench.handling.batch([_record(offset) for offset in range(10)], batch)


async def test_what_was_done_before_the_worker_stops_is_acknowledged() -> None:
    bench = Bench(run=3)
    acknowledged: list[int] = []
    batch = Batch(bench, {}, poison=(1, 2, 3, 4, 5, 6))
    with pytest.raises(Fatal, match="4 dead letters in a row"):
        await bench.handling.batch(
            [_record(offset) for offset in range(9)],
            batch,
            lambda records: acknowledged.extend(record.offset for record in records),
        )
    assert _offsets(bench) == [1, 2, 3]
    assert acknowledged == [0, 1, 2, 3]


@pytest.mark.parametrize("error", [Transient("away"), ValueError("ours")])
async def test_each_record_of_a_batch_is_acknowledged_once(error: Exception) -> None:
    bench = Bench()
    acknowledged: list[int] = []
    await bench.handling.batch(
        [_record(offset) for offset in range(4)],
        Batch(bench, {2: error}, poison=(1,)),
        lambda records: acknowledged.extend(record.offset for record in records),
    )
    assert acknowledged == [0, 1, 2, 3]


async def test_one_user_s_dead_letters_do_not_stop_the_worker_for_others() -> None:
    bench = Bench(run=20)
    by = ((BY, b"u1"),)
    records = [_record(offset, by)._replace(key=b"chat-%d" % offset) for offset in range(100)]
    await bench.handling.batch(records, Batch(bench, {}, poison=range(100)))
    assert len(_offsets(bench)) == 100
    with pytest.raises(Fatal, match="in a row"):
        await bench.handling.batch(
            [record._replace(headers=()) for record in records], Batch(bench, {}, poison=range(100))
        )
