"""Dead letters on a real log: listed, replayed with a limit, dropped, forgotten with their log."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from redis.asyncio import Redis

from infra import topics
from schemas.delivery import Outgoing, Record, Topics, dead_letters
from services.deadletters.policy import Kind, Place, ReplayPolicy, Selection, place
from services.failures import Poison, Transient
from services.metrics import Metrics
from services.settings import Settings
from streams.cli import dlq
from streams.deadletters import DeadLetters, Listed, open_dead_letters
from streams.runtime.handling import Handling
from streams.runtime.limits import DeadLetterLimits
from streams.runtime.publisher import Publisher
from streams.runtime.retries import Retries
from tests.stack import Broker

VALUE = b'{"not": "a turn", \xff\x00 "secret words"'


@pytest.fixture
def settings(broker: Broker, redis: Redis, redis_url: str) -> Settings:
    """Of this test's servers."""
    return Settings(kafka=broker.bootstrap, redis=redis_url)


async def bury(settings: Settings, *failures: Exception, headers: tuple[tuple[str, bytes], ...] = ()) -> None:
    """Make dead letters as the runtime does: one for each failure, of chats c0, c1, ..."""
    publisher = Publisher(settings)
    await publisher.start()
    handling = Handling(
        "window", publisher, Metrics("window"), DeadLetterLimits(1000, 1000, lambda: 0.0), Retries(0.0)
    )

    for number, failure in enumerate(failures):

        async def handle(_: Record, failure: Exception = failure) -> Any:
            raise failure

        record = Record(Topics.TURNS, 0, number, b"c%d" % number, VALUE, headers, 1_000 * number)
        await handling.single(record, handle)
    await publisher.stop()


async def found(
    letters: DeadLetters, selection: Selection | None = None, limit: int | None = None
) -> list[Listed]:
    """All of a selection."""
    async with aclosing(letters.find(selection or Selection(), limit)) as listed:
        return [each async for each in listed]


async def read_topic(settings: Settings, name: str, count: int) -> list[Any]:
    """The first `count` records of a topic, by key."""
    consumer = AIOKafkaConsumer(name, bootstrap_servers=settings.kafka, auto_offset_reset="earliest")
    await consumer.start()
    try:
        async with asyncio.timeout(30):
            return sorted([await anext(consumer) for _ in range(count)], key=lambda record: record.key)
    finally:
        await consumer.stop()


async def test_they_are_listed_with_what_is_said_about_them(settings: Settings) -> None:
    await bury(settings, Poison("text: too long"), Transient("the model is down"), KeyError("secret words"))
    async with open_dead_letters(settings) as letters:
        listed = sorted(await found(letters), key=lambda each: each.letter.record.key or b"")
        parked = await found(letters, Selection(kind=Kind.parked))
        assert await found(letters, Selection(agent="merge")) == []
        assert len(await found(letters, limit=2)) == 2
    assert [each.letter.kind for each in listed] == ["poison", "parked", "unexpected"]
    assert listed[0].letter.reason == "text: too long"
    assert listed[2].letter.reason.startswith("KeyError at ")
    assert [each.letter.id for each in parked] == [listed[1].letter.id]
    assert listed[0].letter.record.value == VALUE


async def test_a_replay_brings_back_the_record_as_it_was(settings: Settings) -> None:
    await bury(settings, Poison("wrong"), Transient("down"), headers=(("traceparent", b"00-7"),))
    async with open_dead_letters(settings) as letters:
        done = await letters.replay(Selection(), None, ReplayPolicy())
        assert len(done.ids) == 2
        assert await found(letters) == []
        handled = await found(letters, Selection(handled=True))
        again = await letters.replay(Selection(), None, ReplayPolicy())
        assert again.ids == ()
    assert {each.handled.split(" ")[0] for each in handled} == {"replayed"}
    records = await read_topic(settings, Topics.TURNS, 2)
    assert [(record.key, record.value) for record in records] == [(b"c0", VALUE), (b"c1", VALUE)]
    assert list(records[0].headers) == [("traceparent", b"00-7"), ("afterturn-replayed", b"1")]


async def test_a_loop_is_visible_and_limited(settings: Settings) -> None:
    await bury(
        settings, Poison("wrong"), headers=(("afterturn-replayed", b"3"), ("afterturn-kind", b"forged"))
    )
    async with open_dead_letters(settings) as letters:
        (listed,) = await found(letters)
        assert (listed.letter.kind, listed.letter.replayed) == ("poison", 3)
        done = await letters.replay(Selection(), None, ReplayPolicy(times=3))
        assert done.ids == ()
        assert [id for id, _ in done.refused] == [listed.letter.id]
        assert len(await found(letters)) == 1, "a refused one stays on the list"
        forced = await letters.replay(Selection(), None, ReplayPolicy(times=3, force=True))
        assert forced.ids == (listed.letter.id,)
    (record,) = await read_topic(settings, Topics.TURNS, 1)
    assert list(record.headers) == [("afterturn-replayed", b"4")]


async def test_ids_and_limits_choose(settings: Settings) -> None:
    await bury(settings, *[Poison("wrong")] * 3)
    async with open_dead_letters(settings) as letters:
        first, second, third = sorted(each.letter.id for each in await found(letters))
        one = Selection(places=frozenset([place(second, letters.routes)]))
        assert (await letters.drop(one, None)).ids == (second,)
        assert {each.letter.id for each in await found(letters)} == {first, third}
        assert len((await letters.drop(Selection(), 1)).ids) == 1
        assert len(await found(letters)) == 1
        # what is named is meant, dealt with or not
        assert (await letters.replay(one, None, ReplayPolicy())).ids == (second,)
        nowhere = Place("chat.turns.v1.window.dlq", 11, 99)
        assert (await letters.drop(Selection(places=frozenset([nowhere])), None)).missing == ("window:11:99",)


async def test_without_redis_they_are_visible_again(settings: Settings, redis: Redis) -> None:
    await bury(settings, Poison("wrong"))
    async with open_dead_letters(settings) as letters:
        await letters.drop(Selection(), None)
        assert await found(letters) == []
        assert all([await redis.ttl(key) > 0 for key in await redis.keys("dlq:*")])
        await redis.flushdb()
        assert len(await found(letters)) == 1


@pytest.mark.parametrize("bare_broker", ["embedded"], indirect=True)
async def test_what_is_handled_belongs_to_one_log(
    settings: Settings, broker: Broker, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(settings, Poison("wrong"))
    async with open_dead_letters(settings) as letters:
        await letters.drop(Selection(), None)
    real = topics.read_epochs

    async def made_again(*args: Any, **options: Any) -> dict[str, str]:
        return {name: f"{epoch}-new" for name, epoch in (await real(*args, **options)).items()}

    monkeypatch.setattr(topics, "read_epochs", made_again)
    async with open_dead_letters(settings) as letters:
        assert len(await found(letters)) == 1


async def test_a_failed_replay_marks_only_what_was_published(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bury(settings, *[Poison("wrong")] * 3)
    real = Publisher.forward
    calls: list[str] = []

    async def forward(self: Publisher, topic: str, *rest: Any) -> None:
        if len(calls) == 2:
            raise Transient("Kafka did not confirm", outage=True)
        calls.append(topic)
        await real(self, topic, *rest)

    async with open_dead_letters(settings) as letters:
        monkeypatch.setattr(Publisher, "forward", forward)
        with pytest.raises(Transient):
            await letters.replay(Selection(), None, ReplayPolicy())
        assert len(await found(letters)) == 1
    assert len(await read_topic(settings, Topics.TURNS, 2)) == 2


@pytest.mark.parametrize("bare_broker", ["embedded"], indirect=True)
async def test_the_list_has_no_text_and_show_has_the_bytes(
    settings: Settings, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    await bury(settings, Poison("id: has [red]\x1b[31m control characters"))
    await dlq._list(settings, Selection(), 100, False)
    await dlq._list(settings, Selection(), 100, True)
    table, line = capfdbinary.readouterr().out.split(b"1 dead letters\n")
    assert b"secret words" not in table + line
    assert b"[red]\\x1b[31m control" in table
    row = json.loads(line)
    assert (row["kind"], row["key"], row["topic"]) == ("poison", "c0", "chat.turns.v1")
    await dlq._show(settings, row["id"], False)
    head, _, value = capfdbinary.readouterr().out.partition(b"\n\n")
    assert value == VALUE + b"\n"
    assert b"afterturn-kind: poison\n" in head
    await dlq._show(settings, row["id"], True)
    assert capfdbinary.readouterr().out == VALUE


@pytest.mark.rule("W7")
async def test_what_is_before_a_tombstone_of_its_key_is_gone(settings: Settings) -> None:
    await bury(settings, Poison("wrong"), Poison("wrong"))
    topic = dead_letters(Topics.TURNS, "window")
    async with open_dead_letters(settings) as letters:
        first, second = sorted(await found(letters), key=lambda each: each.letter.record.key or b"")
        publisher = Publisher(settings)
        await publisher.start()
        await publisher.publish([Outgoing(topic, b"c0", None)])
        assert [each.letter.id for each in await found(letters)] == [second.letter.id]
        named = Selection(places=frozenset([place(first.letter.id, letters.routes)]))
        assert await found(letters, named) == []
        assert (await letters.replay(named, None, ReplayPolicy())).missing == (first.letter.id,)
        assert (await letters.replay(Selection(), None, ReplayPolicy())).ids == (second.letter.id,)
        # what comes behind it is one again, also where it is without its value
        await bury(settings, Poison("this chat was deleted", keep=False))
        (late,) = await found(letters)
        await publisher.stop()
    assert (late.letter.reason, late.letter.record.value) == ("this chat was deleted", None)
