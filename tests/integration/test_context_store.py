"""A chat read from Redis as the agents wrote it, and the views made of it."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic_core import to_json
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from schemas.context import ContextView
from schemas.memory_view import MemoryView
from services.context import store
from services.context.policy import assemble
from services.context.snapshot import Snapshot
from services.context.views import context_json, memory_view
from services.state.transaction import at_once
from tests.gateway import NOW, play, summarise, turn, words


async def read(redis: Redis, chat: str = "c1") -> Snapshot:
    found = await store.read(redis, chat)
    assert found is not None
    return found


async def test_an_unknown_chat_is_none(redis: Redis) -> None:
    assert await store.read(redis, "c1") is None
    assert await store.owner(redis, ["c1"]) == [None]


@pytest.mark.rule("W6", "F2")
async def test_every_message_is_in_a_summary_pending_or_live(redis: Redis) -> None:
    # 50 live messages, 30 of three chunks, 4 more pending
    chunks = await play(redis, [turn(number) for number in range(42)])
    assert [chunk.index for chunk in chunks] == [0, 1, 2]
    # the second chunk waits while the third has its summary
    for at in (0, 2):
        await summarise(redis, chunks[at])
    chat = await read(redis)
    assert [message.seq for message in chat.pending] == [*range(10, 20), *range(30, 34)]
    assert [message.seq for message in chat.live] == list(range(34, 84))

    view = ContextView.model_validate_json(context_json(chat, assemble(chat, None, 0, words)))
    _, long_term, merged, recent, pending, live = view.parts
    assert (long_term.ids, merged.ids) == ((), ())
    assert recent.ids == (chunks[0].id, chunks[2].id)
    assert recent.span is not None
    assert (recent.span.first_seq, recent.span.last_seq, recent.span.messages) == (0, 29, 20)
    assert pending.ids == tuple(f"m{seq}" for seq in (*range(10, 20), *range(30, 34)))
    assert live.ids == tuple(f"m{seq}" for seq in range(34, 84))
    assert view.totals.left_out_tokens == 0


@pytest.mark.rule("S9", "W6")
async def test_the_memory_view_tells_what_is_summarised_and_what_waits(redis: Redis) -> None:
    chunks = await play(
        redis, [turn(number, model={"name": "m", "context_window": 8000}) for number in range(42)]
    )
    await summarise(redis, chunks[0])
    view = MemoryView.model_validate_json(to_json(memory_view(await read(redis), NOW + timedelta(seconds=1))))
    assert (view.summarised.messages, view.summarised.of) == (10, 84)
    assert view.summarised.share == pytest.approx(10 / 84)
    assert (view.pending.count, view.pending.chunks) == (24, 2)
    assert view.pending.oldest_age_seconds == (1000 - 5) * 60 + 1
    assert view.pending.tokens == 24 * 5
    assert view.live.count == 50
    assert (view.bounds.tokens, view.bounds.messages) == (2000, 50)
    assert [tier.tier for tier in view.tiers] == ["long_term", "merged", "recent"]
    (recent,) = view.tiers[2].summaries
    assert recent.provenance.chunk_ids == (chunks[0].id,)
    assert view.tiers[2].span == chunks[0].span


async def test_without_pending_messages_there_is_no_age(redis: Redis) -> None:
    await play(redis, [turn(0)])
    view = memory_view(await read(redis), NOW)
    assert view["pending"]["oldest_age_seconds"] is None
    assert view["summarised"]["share"] == 0


@pytest.mark.rule("S5")
async def test_without_bodies_a_context_is_the_same_at_every_budget(redis: Redis) -> None:
    chunks = await play(redis, [turn(number) for number in range(42)])
    for chunk in chunks:
        await summarise(redis, chunk, rules=['never say "rules":[ or "body":{'])
    whole, lean = await read(redis), await store.read(redis, "c1", bodies=False)
    assert lean is not None
    assert all(summary.data["body"]["timeline"] for summary in whole.summaries)
    assert all(list(summary.data["body"]) == ["rules"] for summary in lean.summaries)
    for window in (None, *range(1, 400, 7)):
        views = [context_json(chat, assemble(chat, window, 0, words)) for chat in (whole, lean)]
        assert views[0] == views[1]


@pytest.mark.parametrize("protocol", [2, 3])
async def test_either_protocol_of_redis_reads_the_same(redis: Redis, redis_url: str, protocol: int) -> None:
    await play(redis, [turn(number) for number in range(32)])
    async with Redis.from_url(redis_url, protocol=protocol) as other:
        assert await read(other) == await read(redis)


async def test_a_read_of_one_moment_raises_the_error_of_any_command(redis: Redis) -> None:
    await redis.set("text", "x")
    with pytest.raises(ResponseError, match="WRONGTYPE"):
        await at_once(redis, [("GET", "text"), ("HGETALL", "text")])
    with pytest.raises(ResponseError, match="unknown command"):
        await at_once(redis, [("GET", "text"), ("NOSUCHCOMMAND",)])
    assert await at_once(redis, [("GET", "text"), ("GET", "none")]) == [b"x", None]


async def test_the_bytes_read_do_not_grow_with_the_chat(redis: Redis) -> None:
    async def size() -> int:
        chat = await read(redis)
        return len(chat.pending) + len(chat.live)

    chunks = await play(redis, [turn(number) for number in range(60)])
    for chunk in chunks:
        await summarise(redis, chunk)
    before = await size()
    for chunk in await play(redis, [turn(number) for number in range(60, 360)], first_offset=60):
        await summarise(redis, chunk)
    assert await size() == before
