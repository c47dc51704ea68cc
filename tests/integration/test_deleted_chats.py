"""What comes to a deleted chat: late events are answered with another tombstone, repeats of before change nothing."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from schemas.delivery import Outgoing, Position, Topics, dead_letters
from schemas.memories import MemoryRollback
from schemas.summaries import SummarySaved
from schemas.usage import UsageBooked
from services.failures import Poison
from services.takeback.deletion import TOPICS
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from tests.integration.takeback_state import Quoting, announced, delivered, recorded, summaries

USED = {
    "model": {"name": "m"},
    "usage": {"prompt_tokens": 5, "completion_tokens": 1},
    "memory": {"level": "key_events"},
}


def turn(number: int) -> dict[str, Any]:
    said = [(f"m{number}.0", "secret"), (f"m{number}.1", "words")]
    return recorded(f"t{number}", said, f"e{number}", **USED)


async def apply(window: Window, event: Delivered) -> Work | Poison:
    (result,) = await window.apply([event])
    return result


def tombstones(result: Work | Poison) -> list[str]:
    return [record.topic for record in result.publish if record.value is None and record.key == b"c1"]


def uses(publish: tuple[Outgoing, ...]) -> list[str]:
    return [
        UsageBooked.model_validate_json(record.value).id
        for record in publish
        if record.topic == Topics.USAGE and record.value
    ]


@pytest.mark.rule("W7")
async def test_a_late_event_is_answered_with_another_tombstone(redis: Redis) -> None:
    window = Window(redis, len, ChunkSize(4, 1_000))
    await apply(window, delivered(turn(1), 1))
    deletion = delivered({"type": "chat.deleted", "id": "gone"}, 2)
    first = await apply(window, deletion)
    assert isinstance(first, Work)
    assert sorted(tombstones(first)) == sorted(TOPICS)
    assert dead_letters(Topics.TURNS, "window") in TOPICS
    edit = {"type": "message.edited", "id": "e9", "message": {"id": "m1.0", "text": "secret"}}
    for body in (turn(3), edit):
        for position in (Position("log-1", 0, 3), Position("log-1", 5, 3), Position("log-2", 0, 0)):
            # again and again: a process may die before the tombstone is confirmed
            for _ in range(2):
                late = await apply(window, delivered(body, 3)._replace(position=position))
                assert isinstance(late, Poison)
                assert (str(late), late.keep) == ("chat.id: this chat was deleted", False)
                assert tombstones(late) == [Topics.TURNS]
    again = await apply(window, deletion)
    assert isinstance(again, Work)
    assert tombstones(again) == tombstones(first)


@pytest.mark.rule("W7", "C1")
async def test_what_was_carried_out_before_is_a_repeat_and_its_usage_is_not_lost(redis: Redis) -> None:
    window = Window(redis, len, ChunkSize(4, 1_000))
    regenerated = {**turn(2), "type": "turn.regenerated", "id": "again"}
    regenerated["messages"] = [{"id": "m2.9", "role": "user", "text": "else"}]
    batch = [
        delivered(turn(1), 1),
        delivered(turn(2), 2),
        delivered(regenerated, 3),
        delivered({"type": "chat.rewound", "id": "back", "turn": {"id": "t1"}}, 4),
        delivered({"type": "chat.deleted", "id": "gone"}, 5),
    ]
    done = await window.apply(batch)
    # the process dies before anything is published
    again = await window.apply(batch)
    for before, after in zip(done, again, strict=True):
        assert isinstance(before, Work)
        assert isinstance(after, Work)
        assert after.repeated
        assert uses(after.publish) == uses(before.publish)
    assert len({use for result in again for use in uses(result.publish)}) == 3
    # what was regenerated and what was recorded is not there again
    assert set(await redis.keys("{c:c1}:*")) == {b"{c:c1}:w", b"{c:c1}:o:window"}


@pytest.mark.rule("W7")
async def test_a_chunk_and_a_summary_that_were_on_their_way_are_answered_too(redis: Redis) -> None:
    window, service = Window(redis, len, ChunkSize(4, 1_000)), summaries(redis, Quoting())
    chunks = []
    for number in range(40):
        work = await apply(window, delivered(turn(number), number))
        assert isinstance(work, Work)
        chunks += announced(work)[0]
    _, saved = announced(await service.summarise(chunks[0]))
    assert isinstance(saved[0], SummarySaved)
    await apply(window, delivered({"type": "chat.deleted", "id": "gone"}, 40))
    assert tombstones(await service.summarise(chunks[1])) == [Topics.CHUNKS]
    assert tombstones(await service.merge(saved[0])) == [Topics.SUMMARIES]
    unknown = saved[0].model_copy(update={"chat_id": "c9"})
    assert (await service.merge(unknown)).publish == ()


@pytest.mark.rule("W7", "M9")
async def test_a_chat_that_is_deleted_again_is_gone_and_its_memories_may_still_be_forgotten(
    redis: Redis,
) -> None:
    window = Window(redis, len, ChunkSize(4, 1_000))
    await apply(window, delivered(turn(1), 1))
    await apply(window, delivered({"type": "chat.deleted", "id": "gone"}, 2))
    again = await apply(window, delivered({"type": "chat.deleted", "id": "gone-2"}, 3))
    assert isinstance(again, Work)
    assert again.repeated
    assert again.publish == (Outgoing(Topics.TURNS, b"c1", None),)
    event = delivered({"type": "chat.deleted", "id": "gone-3", "forget_memories": True}, 4)
    for _ in range(2):
        forgotten = await apply(window, event)
        assert isinstance(forgotten, Work)
        command, tombstone = forgotten.publish
        assert tombstone == Outgoing(Topics.TURNS, b"c1", None)
        assert (command.topic, command.key) == (Topics.MEMORY_COMMANDS, b"u1")
        rollback = MemoryRollback.model_validate_json(command.value or b"")
        assert (rollback.chat_id, rollback.turns, rollback.messages) == ("c1", None, None)
    signed_out = delivered({"type": "chat.deleted", "id": "gone-4", "forget_memories": True, "user": None}, 5)
    result = await apply(window, signed_out)
    assert isinstance(result, Work)
    assert result.publish == (Outgoing(Topics.TURNS, b"c1", None),)
    assert await redis.keys("{c:c1}:o:*") == [b"{c:c1}:o:window"]
