"""A kept Redis meets a new log (promise 9): chunks and merges that the old log had announced are not forgotten."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from schemas.chat import ChatRef
from schemas.delivery import Outgoing, Position, Topics
from schemas.turns import Message, Role, TurnRecorded, TurnRef
from services.memories.service import Memories
from services.settings import Settings
from services.state import keys
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from streams.recovery import announce_again, announce_changes_again
from streams.resources import Resources
from tests.integration.takeback_state import delivered as takeback_event
from tests.integration.takeback_state import recorded
from tests.memories import command, delivered


class Recorder:
    """Remembers what was published."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []

    async def publish(self, records: Sequence[Outgoing]) -> None:
        self.records += records


def resources(redis: Redis, epoch: str) -> tuple[Resources, Recorder]:
    recorder = Recorder()
    epochs = {Topics.TURNS: epoch, Topics.CHUNKS: epoch, Topics.MEMORY_CHANGES: epoch}
    made = Resources(
        settings=Settings(), redis=redis, publisher=cast(Any, recorder), counter=len, epochs=epochs
    )
    return made, recorder


async def fill(redis: Redis, turns: int) -> list[Work]:
    window = Window(redis, len, ChunkSize(messages=2))
    events = [
        TurnRecorded(
            id=f"e{n}",
            at=datetime(2026, 1, 1, tzinfo=UTC),
            chat=ChatRef(id="c"),
            turn=TurnRef(id=f"t{n}"),
            messages=(Message(id=f"m{n}", role=Role.user, text="x" * 3_000),),
        )
        for n in range(turns)
    ]
    done = await window.apply([Delivered(event, Position("old", 0, n), 0) for n, event in enumerate(events)])
    assert all(isinstance(work, Work) for work in done)
    return cast(list[Work], done)


@pytest.mark.rule("W6")
async def test_pending_chunks_are_announced_in_a_new_log_once(redis: Redis) -> None:
    work = await fill(redis, 10)
    announced = [record for each in work for record in each.publish]
    for each in work:
        if each.confirmed is not None:
            await each.confirmed()
    first, seen = resources(redis, "old")
    await announce_again(first)
    again, seen = resources(redis, "new")
    assert await announce_again(again) == len(announced) > 0
    assert [r.value for r in seen.records] == [r.value for r in announced]
    assert {r.topic for r in seen.records} == {Topics.CHUNKS}
    assert await announce_again(again) == 0
    assert await announce_again(dataclasses.replace(again, epochs={Topics.CHUNKS: "newer"})) == len(announced)


async def test_an_outbox_that_was_not_confirmed_is_published_and_trimmed(redis: Redis) -> None:
    await fill(redis, 10)
    assert await redis.hlen(keys.outbox("c", "window")) > 0
    made, seen = resources(redis, "new")
    await announce_again(made)
    assert seen.records
    assert await redis.hlen(keys.outbox("c", "window")) == 0


async def test_a_take_back_that_memories_may_not_have_seen_is_announced(redis: Redis) -> None:
    await fill(redis, 1)
    rollback = command(1, "memory.rollback", chat_id="c", generation=1, turns=["t0"])
    value = rollback.model_dump_json(exclude_none=True)
    await redis.hset(keys.ChatKeys.of("c").memory_rollbacks, rollback.id, value)
    made, seen = resources(redis, "new")
    await announce_again(made)
    assert Outgoing(Topics.MEMORY_COMMANDS, b"u1", value.encode()) in seen.records


@pytest.mark.rule("M9", "W7")
async def test_memory_commands_are_announced_in_the_order_in_which_they_take_effect(redis: Redis) -> None:
    """A turn is regenerated seven times, each time with another write into memories, and nothing was published."""
    turns = [
        recorded(
            "t1",
            [("m1", "hello"), (f"m1.{n}", f"reply {n}")],
            f"e{n}",
            memory={"ops": [{"op": "save", "text": f"memory {n}"}]},
            type="turn.regenerated" if n else "turn.recorded",
        )
        for n in range(8)
    ]
    results = await Window(redis, len, ChunkSize()).apply(
        [takeback_event(turn, n) for n, turn in enumerate(turns)]
    )
    expected = [r for work in results for r in work.publish if r.topic == Topics.MEMORY_COMMANDS]
    assert len(expected) == 8 + 7
    made, seen = resources(redis, "new")
    await announce_again(made)
    assert [r for r in seen.records if r.topic == Topics.MEMORY_COMMANDS] == expected
    # published, but perhaps not carried out: in their order as well
    made, seen = resources(redis, "newer")
    await announce_again(made)
    rolled_back = [r for r in expected if b"memory.rollback" in (r.value or b"")]
    assert [r for r in seen.records if r.topic == Topics.MEMORY_COMMANDS] == rolled_back


async def test_results_about_memories_that_were_not_confirmed_are_published_and_trimmed(redis: Redis) -> None:
    service = Memories(redis, len, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))
    of = command(1, by="user", ops=[{"op": "save", "text": "a"}], user="u")
    [work] = await service.apply([delivered(1, of)])
    assert isinstance(work, Work)
    made, seen = resources(redis, "new")
    assert await announce_changes_again(made) == 1
    assert tuple(seen.records) == work.publish
    assert await redis.exists(keys.UserKeys.of("u").outbox) == 0
    assert await announce_changes_again(made) == 0
