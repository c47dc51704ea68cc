"""Chunks are summarised and summaries merged, on a real Redis: repeats, crashes, races, gaps."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis

from schemas.chat import Level
from schemas.delivery import Topics
from schemas.summaries import Body, Rule, Summary, SummarySaved, Tier, TimelineLine
from schemas.usage import Stage
from services.failures import Poison, Transient
from services.llm.port import Unanswered
from services.state import ids, keys
from services.summaries import store
from services.summaries.editing import Editing
from services.summaries.errors import Conflict, MergedAway, NotFound
from services.summaries.port import Draft
from services.summaries.service import Call, Summaries
from services.work import Work
from tests.integration.summaries_state import (
    CHAT,
    PER_CHUNK,
    Clock,
    Told,
    booked,
    chunk,
    close_chunks,
    confirm,
    count,
    in_use,
    nothing,
    saved,
    text_of,
)

K = keys.ChatKeys.of(CHAT)
LATER = datetime(2026, 3, 2, tzinfo=UTC)


async def stored(redis: Redis, key: str, field: str) -> bytes:
    """A field that has to be there."""
    value = await redis.hget(key, field)
    assert isinstance(value, bytes)
    return value


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def calls() -> list[Call]:
    return []


@pytest.fixture
def summaries(redis: Redis, told: Told, calls: list[Call]) -> Summaries:
    return Summaries(redis, told, count, Clock(), observe=calls.append, monotonic=lambda: 0.0)


@pytest.fixture
def editing(redis: Redis) -> Editing:
    return Editing(redis, count, Clock())


async def run(summaries: Summaries, indexes: Sequence[int], *, merging: bool = True) -> list[SummarySaved]:
    """Summarise these chunks, and handle every announcement until none is left, as the agents do."""
    seen: list[SummarySaved] = []
    for index in indexes:
        work = await summaries.summarise(chunk(index))
        waiting = saved(work)
        await confirm(work)
        while waiting:
            seen.append(event := waiting.pop(0))
            if merging:
                work = await summaries.merge(event)
                waiting += saved(work)
                await confirm(work)
    return seen


# --- a chunk


@pytest.mark.rule("S1")
async def test_a_chunk_gets_its_summary_and_its_messages_go_to_the_archive(
    redis: Redis, summaries: Summaries, told: Told, calls: list[Call]
) -> None:
    [closed] = await close_chunks(redis, 1)
    work = await summaries.summarise(closed)

    [summary] = await in_use(redis)
    assert (summary.id, summary.tier, summary.version) == (closed.id, Tier.recent, 1)
    assert (summary.span, summary.generation) == (closed.span, 0)
    assert summary.text == f'{text_of(0)}\nRules:\nu1: "{text_of(0)}"'
    assert summary.tokens == count(summary.text)
    assert summary.provenance.model_dump(exclude_none=True) == {
        "model": "told",
        "prompt_version": "told-1",
        "level": "balanced",
        "chunk_ids": (closed.id,),
        "source_ids": (),
    }
    assert told.budgets == [300]
    assert calls == [Call(Stage.chunk, "answered", 0.0, 100, 10)]

    assert await redis.hkeys(K.messages) == [b"4", b"5"]
    assert await redis.hlen(K.chunks) == 0
    assert await redis.lrange(K.archive_order, 0, -1) == [closed.id.encode()]
    archived = json.loads(zlib.decompress(await stored(redis, K.archive, closed.id)))
    assert [row[0] for row in archived] == [0, 1, 2, 3]
    assert archived[1][1:6] == ["m1", "assistant", "mira", text_of(1), 4]
    assert await redis.hmget(K.window, "sm", "v") == [b"4", b"8"]

    [event] = saved(work)
    assert event.id == ids.derive("saved", CHAT, closed.id, 1)
    assert (event.summary_id, event.tier, event.user_id) == (closed.id, Tier.recent, "u1")
    [usage] = booked(work)
    assert usage.id == ids.derive("usage", "chunk", CHAT, closed.id, 1)
    assert (usage.stage, usage.tokens_in, usage.tokens_out) == (Stage.chunk, 100, 10)
    assert (usage.model, usage.character, usage.user_id) == ("told", "mira", "u1")
    assert {record.topic: record.key for record in work.publish} == {
        Topics.SUMMARIES: b"c1",
        Topics.USAGE: b"u1",
    }


@pytest.mark.rule("S1")
async def test_after_a_crash_before_the_announcement_the_same_ids_go_out_and_no_model_is_asked(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    [closed] = await close_chunks(redis, 1)
    lost = await summaries.summarise(closed)
    again = await summaries.summarise(closed)
    assert again.publish == lost.publish
    assert again.repeated
    assert told.calls == ["chunk 0-3"]

    await confirm(again)
    third = await summaries.summarise(closed)
    assert (third.publish, third.repeated) == ((), True)
    assert await redis.hget(K.window, "sm") == b"4"


async def test_a_crash_while_the_model_answers_leaves_nothing_behind(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    [closed] = await close_chunks(redis, 1)
    before = {key: await redis.dump(key) for key in sorted(await redis.keys())}

    async def dies() -> None:
        raise ConnectionAbortedError

    told.meanwhile = dies
    with pytest.raises(ConnectionAbortedError):
        await summaries.summarise(closed)
    assert {key: await redis.dump(key) for key in sorted(await redis.keys())} == before


async def test_of_two_that_summarise_the_same_chunk_the_first_counts_and_both_uses_are_booked(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    [closed] = await close_chunks(redis, 1)
    other = Summaries(redis, Told(), count, Clock(LATER))

    async def other_finishes() -> None:
        await confirm(await other.summarise(closed))

    told.meanwhile = other_finishes
    work = await summaries.summarise(closed)
    assert work.repeated
    assert saved(work) == []
    [usage] = booked(work)
    assert usage.id != ids.derive("usage", "chunk", CHAT, closed.id, 1)
    assert len(await in_use(redis)) == 1
    assert await redis.hget(K.window, "sm") == b"4"
    assert await redis.llen(K.archive_order) == 1


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_a_chunk_that_was_taken_back_is_dropped(
    redis: Redis, summaries: Summaries, told: Told, when: str
) -> None:
    [closed] = await close_chunks(redis, 1)

    async def taken_back() -> None:
        await redis.hdel(K.chunks, closed.id)

    if when == "before":
        await taken_back()
    else:
        told.meanwhile = taken_back
    work = await summaries.summarise(closed)
    assert work.repeated
    assert saved(work) == []
    assert len(booked(work)) == len(told.calls) == (when == "meanwhile")
    assert await in_use(redis) == []
    assert await redis.hlen(K.messages) == PER_CHUNK + 2


async def test_a_chunk_that_redis_does_not_know_is_dropped(summaries: Summaries, told: Told) -> None:
    work = await summaries.summarise(chunk(3))
    assert (work.publish, work.repeated, told.calls) == ((), True, [])


async def test_missing_messages_of_a_pending_chunk_are_poison_and_the_chunk_stays(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    [closed] = await close_chunks(redis, 1)
    await redis.hdel(K.messages, "1", "2")
    with pytest.raises(Poison, match="2 of the 4 messages"):
        await summaries.summarise(closed)
    assert told.calls == []
    assert await redis.hexists(K.chunks, closed.id)


async def test_a_chunk_without_any_text_asks_no_model(redis: Redis, summaries: Summaries, told: Told) -> None:
    [closed] = await close_chunks(redis, 1)
    for seq in range(PER_CHUNK):
        row = json.loads(await stored(redis, K.messages, str(seq)))
        row[3] = " \n"
        await redis.hset(K.messages, str(seq), json.dumps(row))
    work = await summaries.summarise(closed)
    assert (told.calls, booked(work), len(saved(work))) == ([], [], 1)
    [summary] = await in_use(redis)
    assert (summary.text, summary.tokens) == ("", 0)


@pytest.mark.rule("C1")
async def test_what_a_failed_answer_cost_is_booked_with_the_next(
    redis: Redis, summaries: Summaries, told: Told, calls: list[Call]
) -> None:
    [closed] = await close_chunks(redis, 1)

    async def fails() -> None:
        raise Unanswered("garbage", tokens_in=70, tokens_out=7)

    told.meanwhile = fails
    for _ in range(2):
        with pytest.raises(Transient):
            await summaries.summarise(closed)
    assert [call.outcome for call in calls] == ["failed", "failed"]

    told.meanwhile = nothing
    usage = booked(await summaries.summarise(closed))
    assert sorted(use.tokens_in for use in usage) == [70, 70, 100]
    assert len({use.id for use in usage}) == 3


async def test_the_archive_keeps_the_order_of_the_chunks_when_one_is_late(
    redis: Redis, summaries: Summaries
) -> None:
    chunks = await close_chunks(redis, 4)
    for index in (2, 0, 3):
        await summaries.summarise(chunks[index])
    order = await redis.lrange(K.archive_order, 0, -1)
    assert order == [chunks[0].id.encode(), b"", chunks[2].id.encode(), chunks[3].id.encode()]
    await summaries.summarise(chunks[1])
    assert await redis.lrange(K.archive_order, 0, -1) == [each.id.encode() for each in chunks]


async def test_what_changed_is_told_on_the_live_channel(redis: Redis, summaries: Summaries) -> None:
    [first, _] = await close_chunks(redis, 2)
    async with redis.pubsub(ignore_subscribe_messages=True) as listener:
        await listener.subscribe(keys.channel(CHAT))
        await listener.get_message(timeout=5)
        await summaries.summarise(first)
        heard: list[dict[str, object]] = []
        while len(heard) < 2:
            message = await listener.get_message(timeout=5)
            if message:
                heard.append(json.loads(message["data"]))
    assert heard == [
        {"type": "summary", "summary_id": first.id, "tier": "recent", "version": 1},
        {"type": "window", "version": 8, "live_messages": 2, "pending_messages": PER_CHUNK},
    ]


# --- merging


@pytest.mark.rule("S2", "S5")
async def test_four_recent_become_one_merged_and_the_sources_are_archived(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    chunks = await close_chunks(redis, 5)
    events = await run(summaries, range(5))
    merged, recent = await in_use(redis)
    assert (merged.tier, recent.tier) == (Tier.merged, Tier.recent)
    assert merged.id == ids.merged_id("merged", CHAT, 0, 0, 15)
    assert (merged.span.first_message, merged.span.last_message, merged.span.messages) == ("m0", "m15", 16)
    sources = tuple(each.id for each in chunks[:4])
    assert merged.provenance.chunk_ids == merged.provenance.source_ids == sources
    assert [rule.message_id for rule in merged.body.rules] == ["m0", "m4", "m8", "m12"]
    assert set(await redis.hkeys(K.archived_summaries)) == {each.encode() for each in sources}
    assert [event.tier for event in events].count(Tier.merged) == 1
    assert told.calls.count("merged 0-15") == 1


@pytest.mark.rule("S2")
async def test_four_merged_become_part_of_the_long_term_memory_step_by_step(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    await close_chunks(redis, 33)
    await run(summaries, range(33))
    long_term, recent = await in_use(redis)
    assert (long_term.tier, long_term.span.first_seq, long_term.span.last_seq) == (Tier.long_term, 0, 127)
    assert recent.tier is Tier.recent
    assert [call for call in told.calls if call.startswith("long_term")] == [
        "long_term 0-63",
        "long_term 0-127",
    ]
    assert len(long_term.body.rules) == 32
    # what was there is not told again, and what joins comes after it
    assert [line.text for line in long_term.body.timeline] == [text_of(4 * at) for at in range(32)]
    assert told.shown[-1] == [0, 4, 4, 4, 4]

    # the tree can be taken apart: from the long-term memory down to every chunk
    everything = [Summary.model_validate_json(raw) for raw in await redis.hvals(K.archived_summaries)]
    archived = {summary.id: summary for summary in everything}
    assert len(archived) == len(everything) == 32 + 8 + 1

    def leaves(summary: Summary) -> list[str]:
        if summary.tier is Tier.recent:
            return list(summary.provenance.chunk_ids)
        return [leaf for source in summary.provenance.source_ids for leaf in leaves(archived[source])]

    assert long_term.provenance.chunk_ids == ()
    assert leaves(long_term) == [chunk(index).id for index in range(32)]


@pytest.mark.rule("S2")
async def test_merging_waits_for_the_chunk_that_is_late_and_then_catches_up(
    redis: Redis, summaries: Summaries
) -> None:
    await close_chunks(redis, 9)
    await run(summaries, [1, 2, 3, 4, 5, 6, 7, 8])
    assert [each.tier for each in await in_use(redis)] == [Tier.recent] * 8
    await run(summaries, [0])
    assert [each.tier for each in await in_use(redis)] == [Tier.merged, Tier.merged, Tier.recent]


@pytest.mark.rule("S2")
async def test_after_a_crash_before_the_announcement_of_a_merge_the_same_ids_go_out(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    await close_chunks(redis, 4)
    *_, event = await run(summaries, range(4), merging=False)
    lost = await summaries.merge(event)
    again = await summaries.merge(event)
    assert again.publish == lost.publish
    assert again.repeated
    assert [each.tier for each in saved(again)] == [Tier.merged]
    assert told.calls.count("merged 0-15") == 1
    await confirm(again)
    assert (await summaries.merge(event)).publish == ()


async def test_of_two_that_save_the_same_merge_the_second_is_refused(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    await close_chunks(redis, 4)
    *_, event = await run(summaries, range(4), merging=False)
    other = Summaries(redis, Told(), count, Clock(LATER))

    async def other_finishes() -> None:
        await confirm(await other.merge(event))

    told.meanwhile = other_finishes
    work = await summaries.merge(event)
    assert saved(work) == []
    assert [use.stage for use in booked(work)] == [Stage.merge]
    [merged] = await in_use(redis)
    assert (merged.tier, merged.version) == (Tier.merged, 1)


async def test_a_merge_starts_over_when_something_was_taken_back_meanwhile(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    await close_chunks(redis, 4)
    *_, event = await run(summaries, range(4), merging=False)

    async def taken_back() -> None:
        told.meanwhile = nothing
        await redis.hset(K.window, "g", 1)

    told.meanwhile = taken_back
    work = await summaries.merge(event)
    assert told.calls.count("merged 0-15") == 2
    assert [each.generation for each in saved(work)] == [1]
    [merged] = await in_use(redis)
    assert merged.id == ids.merged_id("merged", CHAT, 1, 0, 15)


@pytest.mark.rule("S6")
async def test_a_merge_that_lost_the_race_with_an_edit_starts_over_from_the_edited_text(
    redis: Redis, summaries: Summaries, told: Told, editing: Editing
) -> None:
    await close_chunks(redis, 4)
    *_, event = await run(summaries, range(4), merging=False)

    async def edited() -> None:
        told.meanwhile = nothing
        await editing.edit(CHAT, chunk(1).id, 1, "She never liked the sea.", by="u1")

    told.meanwhile = edited
    work = await summaries.merge(event)
    [merged] = await in_use(redis)
    assert "She never liked the sea." in merged.text
    assert text_of(4) not in merged.text
    assert told.calls.count("merged 0-15") == 2
    archived = Summary.model_validate_json(await stored(redis, K.archived_summaries, chunk(1).id))
    assert (archived.version, archived.edited_by) == (2, "u1")
    # both answers were paid for; the edit that its gateway did not get to announce goes out as well
    assert len({use.id for use in booked(work)}) == 2
    assert sorted(each.tier for each in saved(work)) == [Tier.merged, Tier.recent]


@pytest.mark.rule("S6")
async def test_edits_without_end_give_way_to_a_later_attempt(
    redis: Redis, summaries: Summaries, told: Told, editing: Editing
) -> None:
    await close_chunks(redis, 4)
    *_, event = await run(summaries, range(4), merging=False)

    async def edited() -> None:
        version = (await in_use(redis))[0].version
        await editing.edit(CHAT, chunk(0).id, version, f"Version {version}.", by="u1")

    told.meanwhile = edited
    with pytest.raises(Transient):
        await summaries.merge(event)
    assert len(await in_use(redis)) == 4


@pytest.mark.rule("S7")
async def test_a_merge_takes_the_level_of_its_time(redis: Redis, summaries: Summaries, told: Told) -> None:
    await close_chunks(redis, 4)
    *_, event = await run(summaries, range(4), merging=False)
    await redis.hset(K.window, "lv", "detailed")
    await summaries.merge(event)
    assert told.levels == [Level.balanced] * 4 + [Level.detailed]
    assert (await in_use(redis))[0].provenance.level is Level.detailed


@pytest.mark.rule("S4", "S5")
async def test_a_long_term_memory_well_over_its_cap_is_compressed_and_its_earlier_text_archived(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    await close_chunks(redis, 16)
    *_, event = await run(summaries, range(16))
    [long_term] = await in_use(redis)
    lines = tuple(TimelineLine(text="word " * 100, first_seq=seq, last_seq=seq) for seq in range(101))
    grown = long_term.model_copy(
        update={"body": Body(timeline=lines, rules=long_term.body.rules), "tokens": 10_100}
    )
    await redis.hset(K.summaries, grown.id, grown.model_dump_json())

    work = await summaries.merge(event)
    [shorter] = await in_use(redis)
    assert (shorter.id, shorter.version, shorter.tier) == (grown.id, 2, Tier.long_term)
    assert shorter.body.rules == grown.body.rules
    assert shorter.provenance.source_ids == (f"{grown.id}@1",)
    assert told.budgets[-1] == 8_000
    archived = Summary.model_validate_json(await stored(redis, K.archived_summaries, f"{grown.id}@1"))
    assert archived.body == grown.body
    assert [use.stage for use in booked(work)] == [Stage.compress]
    await confirm(work)
    assert (await summaries.merge(saved(work)[0])).publish == ()


@pytest.mark.rule("S4")
async def test_a_compression_that_is_still_too_long_is_not_saved(
    redis: Redis, summaries: Summaries, told: Told
) -> None:
    await close_chunks(redis, 16)
    *_, event = await run(summaries, range(16))
    [long_term] = await in_use(redis)
    line = TimelineLine(text="word " * 10_001, first_seq=0, last_seq=63)
    grown = long_term.model_copy(update={"body": Body(timeline=(line,)), "tokens": 10_001})
    await redis.hset(K.summaries, grown.id, grown.model_dump_json())
    with pytest.raises(Transient, match="10001 tokens"):
        await summaries.merge(event)
    assert await in_use(redis) == [grown]


@pytest.mark.rule("S5")
async def test_rules_pass_a_merge_whatever_the_summariser_makes_of_them(redis: Redis) -> None:
    class Forgetful(Told):
        async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
            draft = await super().merge(sources, tier=tier, level=level, budget=budget)
            invented = draft.body.model_copy(update={"rules": (Rule(quote="Always obey."),)})
            return Draft(invented, draft.model, draft.prompt_version, 1, 1)

    await close_chunks(redis, 4)
    await run(Summaries(redis, Forgetful(), count, Clock()), range(4))
    [merged] = await in_use(redis)
    assert [rule.quote for rule in merged.body.rules] == [text_of(seq) for seq in (0, 4, 8, 12)]


async def test_an_event_of_a_chat_that_redis_does_not_know_changes_nothing(
    redis: Redis, summaries: Summaries
) -> None:
    await close_chunks(redis, 4)
    *_, event = await run(summaries, range(4), merging=False)
    await redis.flushdb()
    assert await summaries.merge(event) == Work(repeated=True)
    assert await redis.keys() == []


# --- editing


@pytest.mark.rule("S6")
async def test_an_edit_raises_the_version_and_is_announced(
    redis: Redis, summaries: Summaries, editing: Editing
) -> None:
    await close_chunks(redis, 1)
    await run(summaries, [0])
    after, work = await editing.edit(CHAT, chunk(0).id, 1, "They met at the harbour.", by="u1")
    assert await in_use(redis) == [after]
    assert (after.version, after.edited_by, after.text) == (2, "u1", "They met at the harbour.")
    assert after.tokens == count(after.text)
    [event] = saved(work)
    assert (event.id, event.version) == (ids.derive("saved", CHAT, chunk(0).id, 2), 2)
    await confirm(work)
    assert (await summaries.merge(event)).publish == ()


@pytest.mark.rule("S6")
async def test_an_edit_of_a_body_keeps_its_rules(
    redis: Redis, summaries: Summaries, editing: Editing
) -> None:
    await close_chunks(redis, 1)
    await run(summaries, [0])
    body = Body(promises=("Mira waits until noon.",), rules=(Rule(quote="Speak slowly."),))
    after, _ = await editing.edit(CHAT, chunk(0).id, 1, body, by="u1")
    assert after.body == body
    assert "Mira waits until noon." in after.text


@pytest.mark.rule("S6")
async def test_an_edit_of_something_else_than_was_read_is_refused(
    redis: Redis, summaries: Summaries, editing: Editing
) -> None:
    await close_chunks(redis, 4)
    await run(summaries, [0])
    await editing.edit(CHAT, chunk(0).id, 1, "First.", by="u1")
    with pytest.raises(Conflict) as refused:
        await editing.edit(CHAT, chunk(0).id, 1, "Second.", by="u2")
    assert refused.value.current == 2
    with pytest.raises(NotFound):
        await editing.edit(CHAT, chunk(1).id, 1, "None.", by="u1")
    await run(summaries, [1, 2, 3])
    with pytest.raises(MergedAway):
        await editing.edit(CHAT, chunk(0).id, 2, "Late.", by="u1")
    [merged] = await in_use(redis)
    assert "First." in merged.text


@pytest.mark.rule("S6")
async def test_of_two_edits_at_once_one_is_refused(
    redis: Redis, summaries: Summaries, editing: Editing, monkeypatch: pytest.MonkeyPatch
) -> None:
    await close_chunks(redis, 1)
    await run(summaries, [0])
    read = store.read_one
    other = Editing(redis, count, Clock(LATER))

    async def read_and_overtaken(*args: Any) -> Summary:
        found = await read(*args)
        monkeypatch.setattr(store, "read_one", read)
        await other.edit(CHAT, found.id, 1, "First.", by="u1")
        return found

    monkeypatch.setattr(store, "read_one", read_and_overtaken)
    with pytest.raises(Conflict):
        await editing.edit(CHAT, chunk(0).id, 1, "Second.", by="u2")
    assert [each.text for each in await in_use(redis)] == ["First."]
