"""Commands on saved memories: whatever dies, comes again, or runs twice, each takes effect once and is told of."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import OutOfMemoryError

from schemas.memories import Status
from services.failures import Poison, Transient
from services.memories import store
from services.memories.decide import decide
from services.memories.service import Delivered
from services.memories.store import Wanted, call, load, write
from services.state import ids, keys
from services.state.scripts import Script
from tests.integration.memories_state import Clock, agrees, apply, confirm, memories, read, told, works
from tests.memories import MIRA, START, characters, command, delivered


def save(number: int, *texts: str, user: str = "u1", **fields: Any) -> Delivered:
    """The user adds memories for Mira."""
    ops = [{"op": "save", "text": text, "scope": MIRA} for text in texts or (f"fact {number}",)]
    return delivered(number, command(number, user=user, by="user", ops=ops, **fields))


async def test_died_before_the_result_was_published(redis: Redis) -> None:
    [lost] = works(await memories(redis).apply([save(1)]))
    [again] = works(await memories(redis).apply([save(1)]))
    assert again.repeated
    assert not lost.repeated
    assert again.publish == lost.publish
    [result] = told(again.publish)
    assert result.id == ids.derive("memory.changed", "u1", "k1")
    await confirm([again])
    state = await read(redis)
    agrees(state)
    assert (len(state.entries), state.outbox) == (1, {})


async def test_died_before_the_result_was_published_and_another_command_comes(redis: Redis) -> None:
    [lost] = works(await memories(redis).apply([save(1)]))
    [next_] = works(await memories(redis).apply([save(2)]))
    assert next_.publish[0] == lost.publish[0]
    assert [result.command_id for result in told(next_.publish)] == ["k1", "k2"]


async def test_died_after_the_broker_confirmed_before_the_trim(redis: Redis) -> None:
    [sent] = works(await memories(redis).apply([save(1)]))
    [again] = works(await memories(redis).apply([save(1)]))
    assert again.publish == sent.publish, "the same id: readers skip it"
    await confirm([again])
    [trimmed] = works(await memories(redis).apply([save(1)]))
    assert (trimmed.publish, trimmed.repeated) == ((), True)


async def test_trimming_leaves_what_came_meanwhile(redis: Redis) -> None:
    first = works(await memories(redis).apply([save(1)]))
    works(await memories(redis).apply([save(2)]))
    await confirm(first)
    assert list((await read(redis)).outbox) == ["k2"]


async def test_the_same_id_sent_twice_changes_nothing(redis: Redis) -> None:
    await apply(redis, save(1))
    before = await read(redis)
    again = delivered(7, command(1, by="user", ops=[{"op": "save", "text": "something else"}]))
    assert await apply(redis, again) == []
    after = await read(redis)
    assert (after.entries, after.changes, after.results) == (before.entries, before.changes, before.results)
    assert after.fields == {**before.fields, "of": "7"}


async def test_as_many_results_are_remembered(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    constants = {"UNPINNED": "100", "PINNED": "20", "REMEMBERED": "3"}
    monkeypatch.setattr(store, "WRITE", Script("services.memories", "write.lua", constants))
    await apply(redis, *(save(n) for n in range(5)))
    assert sorted((await read(redis)).results) == ["k2", "k3", "k4"]
    # the watermark knows that the others took effect
    [work] = works(await memories(redis).apply([save(0)]))
    assert (work.repeated, work.publish) == (True, ())
    # and the ids of entries do, where the same command is sent anew
    [result] = await apply(redis, delivered(9, save(0).command))
    assert [each.status for each in result.results] == [Status.unchanged]
    agrees(await read(redis))


async def test_a_batch_is_applied_in_order_and_users_do_not_mix(redis: Redis) -> None:
    batch = [save(n, user=f"u{n % 3}") for n in range(12)]
    results = works(await memories(redis).apply(batch))
    assert [[told_.command_id for told_ in told(work.publish)] for work in results] == [
        [f"k{n}"] for n in range(12)
    ]
    for user in range(3):
        state = await read(redis, f"u{user}")
        agrees(state)
        assert [change.command for change in state.changes] == [f"k{n}" for n in range(user, 12, 3)]
    await confirm(results)
    assert [(await read(redis, f"u{user}")).outbox for user in range(3)] == [{}, {}, {}]


async def test_half_of_a_batch_ran(redis: Redis) -> None:
    batch = [save(n) for n in range(6)]
    works(await memories(redis).apply(batch[:3]))
    results = works(await memories(redis).apply(batch))
    assert [work.repeated for work in results] == [True] * 3 + [False] * 3
    agrees(await read(redis))


async def test_the_scripts_are_loaded_again_where_redis_has_lost_them(redis: Redis) -> None:
    await apply(redis, save(1), save(2))
    await redis.script_flush()
    await apply(redis, save(3), delivered(4, command(4, "memory.clear", scope=MIRA)))
    state = await read(redis)
    agrees(state)
    assert state.number("of") == 4


async def test_no_memory_is_an_outage_and_nothing_is_half_done(redis: Redis) -> None:
    await redis.config_set("maxmemory", "1")
    try:
        with pytest.raises(OutOfMemoryError):
            await memories(redis).apply([save(1)])
    finally:
        await redis.config_set("maxmemory", "0")
    assert (await read(redis)).fields == {}
    await apply(redis, save(1))
    agrees(await read(redis))


async def test_a_command_on_another_partition_has_lost_its_order(redis: Redis) -> None:
    await apply(redis, save(1))
    before = await read(redis)
    [result] = await memories(redis).apply([delivered(9, save(2).command, partition=3)])
    assert isinstance(result, Poison)
    assert "partition 0, this one is on 3" in str(result)
    assert await read(redis) == before


async def test_a_new_log_begins_anew(redis: Redis) -> None:
    await apply(redis, save(50))
    await apply(redis, delivered(0, save(2).command, epoch="log-2", partition=5))
    state = await read(redis)
    agrees(state)
    assert (state.fields["ep"], state.fields["pa"], state.fields["of"]) == ("log-2", "5", "0")
    assert len(state.entries) == 2


@pytest.mark.rule("M3")
async def test_a_zombie_changes_nothing(redis: Redis) -> None:
    """A worker that has lost its partition goes on with what it had read before."""
    await apply(redis, *(save(n) for n in range(1, 4)))
    before = await read(redis)
    late = delivered(2, command("late", by="user", ops=[{"op": "save", "text": "late"}]))
    [work] = works(await memories(redis).apply([late]))
    assert (work.repeated, work.publish) == (True, ())
    assert await read(redis) == before


@pytest.mark.rule("M3")
async def test_what_was_worked_out_from_an_older_state_is_not_stored(redis: Redis) -> None:
    await apply(redis, *(save(n) for n in range(100)))
    [first, second] = [save(200), save(201)]
    [known] = await load(redis, [Wanted("u1", (first.command,))])
    calls = [
        call(each.command, each.position, decide(each.command, known, characters, START))
        for each in (first, second)
    ]
    replies = await write(redis, calls)
    assert [reply.status for reply in replies] == ["applied", "raced"]
    state = await read(redis)
    agrees(state)
    assert len(state.entries) == 100


@pytest.mark.rule("M3")
async def test_writers_that_run_at_the_same_time_keep_the_caps_and_lose_nothing(redis: Redis) -> None:
    """Two workers that both believe to have the partition: they handle the same records at the same time."""
    await apply(redis, *(save(n) for n in range(98)))
    batches = [[save(n) for n in range(100, 130)] for _ in range(3)]
    answers = await asyncio.gather(*(memories(redis).apply(batch) for batch in batches))
    state = await read(redis)
    agrees(state)
    assert len(state.entries) == 100
    made = [change.command for change in state.changes if change.action == "created"]
    assert len(made) == len(set(made))
    published = {r.command_id for answer in answers for work in works(answer) for r in told(work.publish)}
    assert published == {f"k{n}" for n in range(100, 130)}
    for n in range(100, 130):
        assert f"fact {n}" in state.texts()


async def test_somebody_who_always_writes_is_waited_for(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def raced(redis: Redis, calls: Any) -> list[store.Reply]:
        return [store.Reply("raced", b"", {}) for _ in calls]

    monkeypatch.setattr(store, "write", raced)
    with pytest.raises(Transient):
        await memories(redis).apply([save(1)])


async def test_a_reader_never_mixes_two_moments(redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two round trips of a reading somebody writes: it begins anew."""
    await apply(redis, save(1))
    [entry] = (await read(redis)).entries.values()
    moved = delivered(2, command(2, by="user", ops=[{"op": "move", "id": entry.id, "scope": "global"}]))
    update = command(3, by="user", ops=[{"op": "update", "id": entry.id, "text": "new"}])
    trips = 0
    original = store.at_once

    async def between(*args: Any) -> Any:
        nonlocal trips
        trips += 1
        if trips == 2:
            monkeypatch.setattr(store, "at_once", original)
            await apply(redis, moved)
        return await original(*args)

    monkeypatch.setattr(store, "at_once", between)
    [known] = await load(redis, [Wanted("u1", (update,))])
    assert known.version == 2
    assert list(known.scopes["global"]) == [entry.id]
    assert MIRA not in known.scopes


@pytest.mark.rule("M3", "M8")
@pytest.mark.parametrize("pinned", [False, True])
async def test_the_script_holds_writers_to_the_caps(redis: Redis, pinned: bool) -> None:
    """Even one that has its rules wrong."""
    full, limit = (20, 20) if pinned else (100, 100)
    ops = [{"op": "save", "text": f"{n}", "scope": MIRA, "pinned": pinned} for n in range(full)]
    for at in range(0, full, 50):
        await apply(redis, delivered(at, command(at, by="user", ops=ops[at : at + 50])))
    before = await read(redis)
    assert len(before.entries) == limit
    of = command(500, by="user", ops=[{"op": "save", "text": "over", "scope": MIRA}])
    [known] = await load(redis, [Wanted("u1", (of,))])
    outcome = decide(of, known, characters, START)
    edits = outcome.edits
    edits.scopes[MIRA].update(known.scopes[MIRA])  # type: ignore[attr-defined]
    if pinned:
        new = edits.find(outcome.result.results[0].memory_id or "")
        assert new is not None
        edits.put(new.entry()._replace(pinned=True))
    [reply] = await write(redis, [call(of, delivered(500, of).position, outcome)])
    assert reply.status == "caps"
    assert await read(redis) == before


async def test_a_rollback_that_took_effect_is_no_longer_noted_with_its_chat(redis: Redis) -> None:
    noted = keys.ChatKeys.of("c1").memory_rollbacks
    await redis.hset(noted, mapping={"k1": "{}", "k2": "{}"})
    rollback = delivered(1, command(1, "memory.rollback", chat_id="c1", generation=1, turns=["t1"]))
    results = works(await memories(redis).apply([rollback]))
    assert await redis.hlen(noted) == 2
    await confirm(results)
    assert await redis.hkeys(noted) == [b"k2"]


async def test_each_result_is_announced(redis: Redis) -> None:
    async with redis.pubsub() as listener:
        await listener.subscribe(keys.UserKeys.of("u1").channel)
        await listener.get_message(timeout=5)
        expected = [
            json.loads(each.value)
            for work in works(await memories(redis).apply([save(1), save(2)]))
            for each in work.publish
        ]
        seen: list[Any] = []
        async with asyncio.timeout(5):
            while len(seen) < 2:
                message = await listener.get_message(ignore_subscribe_messages=True, timeout=5)
                if message is not None:
                    seen.append(json.loads(message["data"]))
    assert seen == expected


async def test_a_preview_stores_nothing(redis: Redis) -> None:
    await apply(redis, save(1))
    before = await read(redis)
    of = command(
        9,
        by="character",
        character="mira",
        ops=[{"op": "save", "text": "Fact 1!"}, {"op": "save", "text": "new"}],
    )
    result = await memories(redis).preview(of)
    assert [each.status for each in result.results] == [Status.echo, Status.applied]
    assert await read(redis) == before


@pytest.mark.rule("M11")
async def test_the_history_is_read_in_pages_and_by_entry(redis: Redis) -> None:
    await apply(redis, *(save(n) for n in range(1, 6)))
    state = await read(redis)
    first = state.changes[0].memory_id
    await apply(redis, delivered(9, command(9, by="user", ops=[{"op": "pin", "id": first}])))
    assert [change.number for change in await store.read_history(redis, "u1", None, 4)] == [6, 5, 4, 3]
    assert [change.number for change in await store.read_history(redis, "u1", 3, 4)] == [2, 1]
    assert await store.read_history(redis, "u1", 1, 4) == []
    assert await store.read_history(redis, "nobody", None, 4) == []
    assert [change.number for change in await store.read_entry_history(redis, "u1", first)] == [6, 1]


async def test_readers(redis: Redis) -> None:
    off = command(2, "memory.settings", character="tom", learn_from_chat=False)
    await apply(redis, save(1), delivered(2, off))
    found = await store.read_scopes(redis, "u1", ["global", MIRA])
    assert [held.entry().wording.text for held in found[MIRA].values()] == ["fact 1"]
    assert found["global"] == {}
    assert await store.read_off(redis, "u1") == {"tom"}
    result = await store.read_result(redis, "u1", "k2")
    assert result is not None
    assert result.command == "memory.settings"
    assert await store.read_result(redis, "u1", "k3") is None


@pytest.mark.rule("M9")
async def test_work_does_not_grow_with_the_history(redis: Redis) -> None:
    """Saving and taking back read as much after a thousand changes as after ten."""

    async def sent(*of: Delivered) -> int:
        before = (await redis.info("stats"))["total_net_output_bytes"]
        await apply(redis, *of)
        return int((await redis.info("stats"))["total_net_output_bytes"]) - int(before)

    source = {"source": {"chat": "c1", "turn": "t"}, "character": "mira"}

    def turn(number: int) -> tuple[Delivered, Delivered]:
        ops = [{"op": "save", "text": f"of a turn {number:05}", "scope": MIRA}]
        return (
            delivered(number, command(number, by="character", ops=ops, **source)),
            delivered(
                number + 1, command(number + 1, "memory.rollback", chat_id="c1", generation=1, turns=["t"])
            ),
        )

    await apply(redis, save(1))
    few = [await sent(each) for each in turn(10_010)]
    [entry] = (await read(redis)).entries
    for at in range(10_100, 10_120):
        ops = [{"op": "update", "id": entry, "text": f"{at} {n}"} for n in range(50)]
        await apply(redis, delivered(at, command(at, by="user", ops=ops)))
    many = [await sent(each) for each in turn(10_500)]
    assert (await read(redis)).number("n") > 1_000
    for before, after in zip(few, many, strict=True):
        assert after < before + 500


async def test_the_clock_tells_when_a_result_came_about(redis: Redis) -> None:
    clock = Clock()
    [result] = await apply(redis, save(1))
    assert result.at == clock()


async def test_what_a_model_writes_loosely_is_read_as_it_is_meant(redis: Redis) -> None:
    """A number in a string is a number, also for what is read before it is decided."""
    await apply(redis, save(1))
    [entry] = (await read(redis)).entries
    await apply(redis, delivered(2, command(2, by="user", ops=[{"op": "delete", "id": entry}])))
    [result] = await apply(redis, delivered(3, command(3, by="user", ops=[{"op": "restore", "change": "2"}])))
    assert [each.status for each in result.results] == [Status.applied]
    agrees(await read(redis))


async def test_what_a_process_has_kept_of_a_user_counts_while_nobody_else_wrote(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition goes to another worker and comes back; scopes are read again after that, and only then."""
    read_scopes = 0

    async def counting(redis: Redis, commands: Any, *after: Any) -> Any:
        nonlocal read_scopes
        read_scopes += sum(":s:" in str(part) for part in commands)
        return await original(redis, commands, *after)

    original = store.at_once
    monkeypatch.setattr(store, "at_once", counting)
    here, there = memories(redis), memories(redis)
    for number, service, expected in ((1, here, 1), (2, here, 1), (3, there, 2), (4, here, 3), (5, here, 3)):
        await confirm(works(await service.apply([save(number)])))
        assert read_scopes == expected, number
    agrees(await read(redis))
    assert len((await read(redis)).entries) == 5


async def test_a_redis_that_has_lost_the_newest_writes_is_read_again(redis: Redis) -> None:
    """A failover: version and number come back, with something else behind them."""
    service, other = memories(redis), memories(redis)
    await confirm(works(await service.apply([save(1)])))
    await redis.flushdb()
    await confirm(works(await other.apply([save(2)])))
    await confirm(works(await service.apply([save(3, "fact 2", "fact 3")])))
    state = await read(redis)
    agrees(state)
    assert [entry.wording.text for entry in state.entries.values()].count("fact 1") == 0
    assert len(state.entries) == 3
