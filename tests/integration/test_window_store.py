"""The window in a real Redis: every answer of its script, its outbox after a crash, and what leaves it."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from schemas.chat import Level
from schemas.delivery import Outgoing
from services.state import ids
from services.window.store import ChunkSize
from tests.integration.window_state import (
    EPOCH,
    KEY_EVENTS,
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

# the answers


async def test_a_turn_is_applied(redis: Redis) -> None:
    event = delivered(
        1,
        7,
        ("What is your name?", "Mira."),
        at="2026-11-30T10:00:00+01:00",
        chat={"id": "c1", "surface": "web", "characters": ["mira"]},
        user={"id": "u1"},
        model={"name": "m-large", "context_window": 65_536},
    )
    work = await good(redis, event)
    assert not work.repeated
    state = await read(redis)
    check(state)
    assert state.live == [(0, 2, 23)]
    assert state.messages[1] == ["m1.1", "assistant", "assistant", "Mira.", 5, 1_796_029_200_000, "t1"]
    assert state.fields == {
        "ep": EPOCH,
        "pa": "0",
        "of": "7",
        "g": "0",
        "n": "2",
        "v": "1",
        "lf": "0",
        "lm": "2",
        "lt": "23",
        "pf": "0",
        "pm": "0",
        "pt": "0",
        "ci": "0",
        "lv": "balanced",
        "cw": "65536",
        "md": "m-large",
        "u": "u1",
        "tn": "1",
        "at": "1796029200000",
        "cj": '{"id":"c1","surface":"web","characters":["mira"]}',
    }


async def test_without_a_time_the_record_s_counts(redis: Redis) -> None:
    await good(redis, delivered(1, 7))
    assert (await read(redis)).number("at") == 1_790_000_000_007


@pytest.mark.rule("C1")
async def test_an_event_that_comes_back_changes_nothing(redis: Redis) -> None:
    event = delivered(1, 7, usage={"prompt_tokens": 10, "completion_tokens": 2})
    first = await good(redis, event)
    before = await read(redis)
    again = await good(redis, event)
    assert again.repeated
    assert await read(redis) == before
    # its usage may not have been published: the same id again
    assert again.publish == first.publish
    assert len(usage_of(again.publish)) == 1


async def test_the_same_event_sent_twice(redis: Redis) -> None:
    await good(redis, delivered(1, 7))
    before = await read(redis)
    assert (await good(redis, delivered(1, 8))).repeated
    after = await read(redis)
    assert after.number("of") == 8
    assert (after.live, after.number("v")) == (before.live, before.number("v"))


@pytest.mark.rule("C1")
async def test_an_event_id_used_for_another_turn_changes_and_books_nothing(redis: Redis) -> None:
    await good(redis, delivered(1, 7))
    usage: dict[str, Any] = {"prompt_tokens": 10, "completion_tokens": 2}
    other = await good(redis, delivered(2, 8, event="e1", usage=usage))
    assert other.repeated
    assert other.publish == ()
    assert len((await read(redis)).live) == 1


@pytest.mark.rule("C1")
async def test_the_same_turn_in_another_event_changes_nothing(redis: Redis) -> None:
    usage: dict[str, Any] = {"prompt_tokens": 10, "completion_tokens": 2}
    first = await good(redis, delivered(1, 7, usage=usage))
    again = await good(redis, delivered(1, 8, event="other", usage=usage, at="2027-01-01T00:00:00Z"))
    assert again.repeated
    assert [u.id for u in usage_of(again.publish)] == [u.id for u in usage_of(first.publish)]
    check(await read(redis))
    # and that event is known from now on
    assert (await good(redis, delivered(1, 8, event="other", usage=usage))).repeated


@pytest.mark.parametrize(
    "changes",
    [
        {"texts": ("hello", "HI")},
        {"texts": ("hello",)},
        {"texts": ("helloh", "i")},
        {"messages": ("m1.0", "m1.x")},
        {"usage": {"prompt_tokens": 1}},
        {"model": {"name": "other"}},
    ],
)
async def test_the_same_turn_with_other_content_ispoison(redis: Redis, changes: dict[str, Any]) -> None:
    await good(redis, delivered(1, 7))
    other = delivered(1, 8, event="other", **changes)
    reason = "turn.id: a turn with this id was recorded with other messages, model or usage"
    assert await poison(redis, other) == reason
    # delivered again, for the same reason
    assert await poison(redis, other) == reason


async def test_a_message_id_of_an_earlier_turn_ispoison(redis: Redis) -> None:
    await good(redis, delivered(1, 7))
    other = delivered(2, 8, messages=("m2.0", "m1.1"))
    assert await poison(redis, other) == "messages: the id m1.1 belongs to a message of an earlier turn"
    assert await poison(redis, other) == "messages: the id m1.1 belongs to a message of an earlier turn"
    await good(redis, delivered(2, 9, event="right"))
    check(await read(redis))


async def test_two_producers_that_hash_differently_are_noticed(redis: Redis) -> None:
    await good(redis, delivered(1, 7, partition=9))
    reason = await poison(redis, delivered(2, 8, partition=1))
    assert "earlier events are on partition 9, this one is on 1" in reason
    assert "murmur2" in reason
    await good(redis, delivered(3, 8, partition=9))


async def test_an_older_writer_is_refused(redis: Redis) -> None:
    await good(redis, delivered(1, 7))
    assert "offset: 5 is not after 7" in await poison(redis, delivered(2, 5))
    assert "offset: 7 is not after 7" in await poison(redis, delivered(2, 7))


async def test_a_new_log_starts_at_offset_0_again(redis: Redis) -> None:
    """Promise 9: not taken for a redelivery, and what the old log had is still known."""
    await good(redis, delivered(1, 7, partition=9))
    new = await good(redis, delivered(2, 0, epoch="log-2", partition=1))
    assert not new.repeated
    state = await read(redis)
    assert [turn[0] for turn in state.live] == [0, 2]
    assert (state.fields["ep"], state.fields["pa"], state.fields["of"]) == ("log-2", "1", "0")
    # a frontend that sends its history once more
    assert (await good(redis, delivered(1, 1, epoch="log-2", partition=1))).repeated
    assert (await good(redis, delivered(2, 0, epoch="log-2", partition=1))).repeated


async def test_a_new_log_that_begins_with_a_repeat(redis: Redis) -> None:
    await good(redis, delivered(1, 7))
    batch = [delivered(n, n - 1, epoch="log-2") for n in (1, 2, 3)]
    results = works(await window(redis).apply(batch))
    assert [work.repeated for work in results] == [True, False, False]
    check(await read(redis))


# leaving and chunks


@pytest.mark.rule("W1", "W4", "W6", "S1")
async def test_the_oldest_turns_leave_and_chunks_close(redis: Redis) -> None:
    published: list[Outgoing] = []
    for event in over(20, **KEY_EVENTS):
        published += (await good(redis, event)).publish
    state = await read(redis)
    check(state)
    # 30 messages stay, the first 10 have left: two chunks of 4, and 2 wait
    assert (state.number("lm"), state.number("pm"), len(state.chunks)) == (30, 2, 2)
    assert chunks_of(published)[: len(state.chunks)][0] == state.chunks[0]
    assert {chunk.id for chunk in chunks_of(published)} == {chunk.id for chunk in state.chunks}


@pytest.mark.rule("W1", "W4")
async def test_the_newest_turn_stays_alone_over_the_bound(redis: Redis) -> None:
    await good(redis, delivered(1, 1))
    await good(redis, delivered(2, 2, ("x" * 9_000, "y" * 9_000)))
    state = await read(redis)
    check(state)
    assert state.live == [(2, 2, 18_000)]
    assert state.pending == [(0, 2, 7)]


@pytest.mark.rule("W1", "W3")
@pytest.mark.parametrize(
    ("context", "kept"), [(None, 10), (1_000_000, 10), (40_000, 10), (16_000, 4), (10, 1)]
)
async def test_a_quarter_of_the_model_s_context_is_a_bound(
    redis: Redis, context: int | None, kept: int
) -> None:
    model = {"name": "m", **({"context_window": context} if context else {})}
    for n in range(12):
        await good(redis, delivered(n, n, ("x" * 500, "y" * 500), model=model))
    assert len((await read(redis)).live) == kept


@pytest.mark.rule("W5", "S1")
async def test_a_smaller_level_counts_from_the_next_turn_and_may_close_several_chunks(redis: Redis) -> None:
    detailed: dict[str, Any] = {"memory": {"level": "detailed"}}
    for event in over(40, **detailed):
        assert (await good(redis, event)).publish == ()
    assert (await read(redis)).number("lm") == 80
    work = await good(redis, delivered(40, 40, **KEY_EVENTS))
    state = await read(redis)
    check(state)
    # 82 messages, 30 stay, 52 leave at once
    assert (state.number("lm"), state.number("pm")) == (30, 0)
    found = chunks_of(work.publish)
    assert [chunk.span.messages for chunk in found] == [4] * 13
    assert [chunk.index for chunk in found] == list(range(13))
    assert {chunk.level for chunk in found} == {Level.key_events}
    # a larger level takes nothing back
    await good(redis, delivered(41, 41, **detailed))
    assert (await read(redis)).number("lm") == 32


@pytest.mark.rule("W5")
async def test_a_smaller_model_counts_from_the_next_turn(redis: Redis) -> None:
    texts = ("x" * 200, "y" * 200)
    for event in over(20, texts=texts):
        await good(redis, event)
    assert (await read(redis)).number("lm") == 40
    work = await good(redis, delivered(20, 20, texts, model={"name": "small", "context_window": 8_000}))
    state = await read(redis)
    check(state)
    assert state.number("lt") == 2_000
    assert len(chunks_of(work.publish)) == 8


@pytest.mark.rule("S1")
async def test_a_chunk_closes_at_its_tokens(redis: Redis) -> None:
    chunk = ChunkSize(100, 1_005)
    for event in over(18, texts=("x" * 100, "y" * 101), **KEY_EVENTS):
        await good(redis, event, chunk)
    state = await read(redis)
    check(state)
    assert state.pending == [(0, 2, 201), (2, 2, 201), (4, 2, 201)]
    await good(redis, delivered(18, 18, ("", ""), **KEY_EVENTS), chunk)
    assert len((await read(redis)).pending) == 4
    await good(redis, delivered(19, 19, ("", ""), **KEY_EVENTS), chunk)
    state = await read(redis)
    assert [c.tokens for c in state.chunks] == [1_005]


@pytest.mark.rule("W2")
@pytest.mark.parametrize("surface", ["discord", "telegram"])
async def test_discord_and_telegram_are_balanced_whatever_is_named(redis: Redis, surface: str) -> None:
    for n, level in enumerate(("detailed", "key_events", None)):
        memory = {"level": level} if level else {}
        await good(redis, delivered(n, n, chat={"id": "c1", "surface": surface}, memory=memory))
        assert (await read(redis)).fields["lv"] == "balanced"


async def test_what_an_event_does_not_name_stays(redis: Redis) -> None:
    named: dict[str, Any] = {"user": {"id": "u1"}, "model": {"name": "a", "context_window": 8_000}}
    await good(redis, delivered(1, 1, memory={"level": "detailed"}, **named))
    await good(redis, delivered(2, 2))
    fields = (await read(redis)).fields
    assert [fields[name] for name in ("lv", "u", "md", "cw")] == ["detailed", "u1", "a", "8000"]
    # the same model without its size keeps what is known, another one does not inherit it
    await good(redis, delivered(3, 3, model={"name": "a"}))
    assert (await read(redis)).fields["cw"] == "8000"
    await good(redis, delivered(4, 4, model={"name": "b"}))
    fields = (await read(redis)).fields
    assert [fields[name] for name in ("lv", "md", "cw")] == ["detailed", "b", ""]


async def test_someone_who_signs_in_later_is_known_then(redis: Redis) -> None:
    await good(redis, delivered(1, 1))
    assert (await read(redis)).fields["u"] == ""
    await good(redis, delivered(2, 2, user={"id": "u1"}))
    assert (await read(redis)).fields["u"] == "u1"


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        'a"b',
        "back\\slash",
        "ümläut-ก็-日本",
        "a/b",
        "'",
        "%s%d",
        "\\31\\u0031",
        "👩‍👩‍👧",
        "]]",
        "\\n",
    ],
)
async def test_ids_of_any_kind_reach_the_chunk_as_they_are(redis: Redis, name: str) -> None:
    chat = f"c-{name}"
    fields: dict[str, Any] = {
        "chat": {"id": chat, "characters": [name], "persona": name},
        "user": {"id": name},
        **KEY_EVENTS,
    }
    published: list[Outgoing] = []
    for n in range(17):
        ids_ = (f"{name}{n}a", f"{name}{n}b")
        work = await good(redis, delivered(f"{name}{n}", n, messages=ids_, event=f"{name}-{n}", **fields))
        published += work.publish
    [chunk] = chunks_of(published)
    check(await read(redis, chat))
    assert chunk.id == ids.chunk_id(chat, 0, 0, 3)
    assert (chunk.span.first_message, chunk.span.last_message) == (f"{name}0a", f"{name}1b")
    assert (chunk.chat.id, chunk.chat.characters, chunk.chat.persona, chunk.user_id) == (
        chat,
        (name,),
        name,
        name,
    )
    assert published[0].key == chat.encode()


async def test_texts_of_any_kind_are_stored_as_they_are(redis: Redis) -> None:
    texts = ['"quotes" \\ and \n lines', "\u2028 สวัสดี 日本語 👩‍👩‍👧 \x00", "", " "]
    await good(redis, delivered(1, 1, texts))
    assert [(await read(redis)).messages[n][3] for n in range(4)] == texts


async def test_the_largest_turn(redis: Redis) -> None:
    await good(redis, delivered(1, 1, ["x"] * 200))
    await good(redis, delivered(2, 2, ["y"] * 200))
    state = await read(redis)
    check(state)
    assert [chunk.span.messages for chunk in state.chunks] == [200]
