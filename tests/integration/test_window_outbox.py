"""What the window has decided to publish, and batches: whatever dies or fails in between, nothing is lost or overtaken."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError, ResponseError

from schemas.delivery import Topics
from schemas.turns import TurnRecorded
from services.failures import Poison, Transient
from services.state import ids, keys
from services.window.incoming import Delivered, in_order
from services.window.store import SCRIPT, apply, call, digest
from services.work import Work
from tests.integration.window_state import (
    KEY_EVENTS,
    SMALL,
    characters,
    check,
    chunks_of,
    delivered,
    good,
    over,
    poison,
    read,
    usage_of,
    window,
    works,
)


async def _until_chunk(redis: Redis) -> tuple[Delivered, Work]:
    for event in over(16, **KEY_EVENTS):
        work = await good(redis, event)
        assert work.publish == ()
    last = over(1, start=16, **KEY_EVENTS)[0]
    work = await good(redis, last)
    return last, work


async def test_died_before_its_chunk_was_published(redis: Redis) -> None:
    last, lost = await _until_chunk(redis)
    again = await good(redis, last)
    assert again.repeated
    assert again.publish == lost.publish
    assert again.confirmed is not None
    await again.confirmed()
    assert (await read(redis)).outbox == set()
    # trimmed: the next delivery has nothing to publish
    assert (await good(redis, last)).publish == ()


async def test_died_before_its_chunk_was_published_and_another_turn_comes(redis: Redis) -> None:
    _, lost = await _until_chunk(redis)
    work = await good(redis, over(1, start=17, **KEY_EVENTS)[0])
    assert not work.repeated
    assert work.publish == lost.publish


async def test_trimming_leaves_what_came_meanwhile(redis: Redis) -> None:
    _, first = await _until_chunk(redis)
    works(await window(redis, SMALL).apply(over(2, start=17, **KEY_EVENTS)))
    assert len((await read(redis)).outbox) == 2
    assert first.confirmed is not None
    await first.confirmed()
    [left] = (await read(redis)).outbox
    assert left == ids.chunk_id("c1", 0, 4, 7)


async def test_died_after_the_broker_confirmed_before_the_trim(redis: Redis) -> None:
    last, sent = await _until_chunk(redis)
    again = await good(redis, last)
    assert [chunk.id for chunk in chunks_of(again.publish)] == [chunk.id for chunk in chunks_of(sent.publish)]


async def test_a_refused_turn_does_not_hide_the_outbox(redis: Redis) -> None:
    last, lost = await _until_chunk(redis)
    await poison(redis, delivered(3, 17, ("other",), event="other"))
    assert (await good(redis, last)).publish == lost.publish


@pytest.mark.rule("C1")
async def test_usage_is_booked_once_for_a_turn(redis: Redis) -> None:
    event = delivered(
        1,
        7,
        at="2026-11-30T10:00:00Z",
        chat={"id": "c1", "characters": ["mira", "tom"]},
        user={"id": "u1"},
        model={"name": "m"},
        usage={"prompt_tokens": 10, "completion_tokens": 2},
    )
    work = await good(redis, event)
    [booked] = usage_of(work.publish)
    assert booked.id == ids.derive("usage", "reply", "c1", "t1", digest(event.event))
    assert (booked.user_id, booked.character, booked.model) == ("u1", "mira", "m")
    assert (booked.tokens_in, booked.tokens_out, booked.stage.value) == (10, 2, "reply")
    assert [record.key for record in work.publish] == [b"u1"]
    again = await good(redis, event)
    assert usage_of(again.publish) == [booked]


@pytest.mark.rule("C1")
async def test_usage_of_someone_signed_out_has_the_chat_as_its_key(redis: Redis) -> None:
    work = await good(redis, delivered(1, 7, usage={"prompt_tokens": 1}))
    [record] = work.publish
    assert (record.topic, record.key) == (Topics.USAGE, b"c1")
    assert usage_of(work.publish)[0].model == "unknown"


async def test_a_batch_is_applied_in_order(redis: Redis) -> None:
    results = works(await window(redis, SMALL).apply(over(30, **KEY_EVENTS)))
    state = await read(redis)
    check(state)
    assert state.number("n") == 60
    # each chunk once, though the outbox held it when the later ones ran
    published = [record for work in results for record in work.publish]
    assert chunks_of(published) == state.chunks
    assert len(state.chunks) == 7
    for work in results:
        if work.confirmed is not None:
            await work.confirmed()
    assert (await read(redis)).outbox == set()


async def test_the_script_is_loaded_again_where_redis_has_lost_it(redis: Redis) -> None:
    service = window(redis)
    works(await service.apply(over(3)))
    await redis.script_flush()
    works(await service.apply(over(3, start=3)))
    check(await read(redis))
    assert (await read(redis)).number("n") == 12


async def test_a_call_does_not_overtake_one_that_failed(redis: Redis) -> None:
    """Another worker loads the script in the middle of a pipeline: only its second half runs."""
    first, second = delivered(1, 1), delivered(2, 2)
    assert isinstance(second.event, TurnRecorded)
    await redis.script_load(SCRIPT.text)
    late = call(
        second.event, digest(second.event), second.position, datetime.now(UTC), characters, SMALL, previous=1
    )
    [reply] = await apply(redis, [late])
    assert reply.status == "order"
    assert (await read(redis)).fields == {}
    works(await window(redis).apply([first, second]))
    check(await read(redis))


async def test_nothing_of_a_batch_is_refused_after_half_of_it_ran(redis: Redis) -> None:
    batch = over(6)
    works(await window(redis).apply(batch[:3]))
    results = works(await window(redis).apply(batch))
    assert [work.repeated for work in results] == [True] * 3 + [False] * 3
    check(await read(redis))


async def test_a_lost_predecessor_is_an_outage_for_the_whole_batch(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def half(redis: Redis, calls: Any) -> Any:
        return (await apply(redis, calls[1:]))[:1] * 2

    monkeypatch.setattr("services.window.service.apply", half)
    with pytest.raises(Transient) as raised:
        await window(redis).apply(over(2))
    assert raised.value.outage


async def test_repeats_and_refusals_between_good_turns_of_one_batch(redis: Redis) -> None:
    await good(redis, delivered(0, 0))
    batch = [
        delivered(0, 1),
        delivered(1, 2),
        delivered(0, 3, event="again"),
        delivered(1, 4, ("other",), event="other"),
        delivered(2, 5, messages=("m0.0", "new")),
        delivered(2, 6, event="right"),
    ]
    results = await window(redis).apply(batch)
    assert [isinstance(result, Poison) for result in results] == [False, False, False, True, True, False]
    check(await read(redis))
    assert (await read(redis)).number("n") == 6


async def test_no_memory_is_an_outage_and_nothing_is_half_done(redis: Redis) -> None:
    await redis.config_set("maxmemory", "1")
    try:
        with pytest.raises(OutOfMemoryError):
            await window(redis).apply(over(3))
    finally:
        await redis.config_set("maxmemory", "0")
    assert (await read(redis)).fields == {}
    works(await window(redis).apply(over(3)))


async def test_an_error_of_the_script_quotes_no_text(redis: Redis) -> None:
    await redis.set(keys.ChatKeys.of("c1").live, "of another type")
    with pytest.raises(ResponseError) as raised:
        await window(redis).apply([delivered(1, 1, ("a secret", "another secret"))])
    assert "secret" not in str(raised.value)


@pytest.mark.rule("W6")
async def test_a_turn_is_announced_with_the_numbers_of_live_and_pending(redis: Redis) -> None:
    async with redis.pubsub() as listener:
        await listener.subscribe(keys.channel("c1"))
        await listener.get_message(timeout=5)
        works(await window(redis, SMALL).apply(over(18, **KEY_EVENTS)))
        hints: list[Any] = []
        async with asyncio.timeout(5):
            while len(hints) < 18:
                message = await listener.get_message(ignore_subscribe_messages=True, timeout=5)
                if message is not None:
                    hints.append(json.loads(message["data"]))
    assert hints[-1] == {"type": "window", "version": 18, "live_messages": 30, "pending_messages": 6}
    assert [hint["version"] for hint in hints] == list(range(1, 19))


def test_chunks_are_published_as_they_closed_and_memory_commands_as_they_take_effect() -> None:
    fields = [b"f-chunk", b"0002/1/z/memory", b"a-chunk", b"0002/0/y/memory", b"0001/1/x/memory"]
    assert in_order(fields) == [
        b"f-chunk",
        b"a-chunk",
        b"0001/1/x/memory",
        b"0002/0/y/memory",
        b"0002/1/z/memory",
    ]
