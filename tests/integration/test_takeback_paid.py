"""A reply that was taken back was paid for: it is booked, whenever the process dies (C1)."""

from __future__ import annotations

from typing import Any

import pytest
from redis.asyncio import Redis

from schemas.delivery import Topics
from schemas.memories import MEMORY_COMMAND
from schemas.usage import UsageBooked
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from tests.integration.takeback_state import delivered, recorded


def replied(turn: str, reply: str, event: str, tokens: int, **fields: Any) -> dict[str, Any]:
    """A turn whose reply cost so many tokens."""
    said = [(f"{turn}.u", "hello"), (f"{turn}.{reply}", reply)]
    usage = {"prompt_tokens": tokens, "completion_tokens": 1}
    return recorded(turn, said, event, model={"name": "m"}, usage=usage, **fields)


def used(works: list[Any]) -> list[tuple[str, int]]:
    """Ids and tokens of what is to be booked."""
    assert all(isinstance(work, Work) for work in works), works
    booked = [
        UsageBooked.model_validate_json(record.value)
        for work in works
        for record in work.publish
        if record.topic == Topics.USAGE
    ]
    return [(use.id, use.tokens_in) for use in booked]


@pytest.mark.rule("C1", "W7")
async def test_the_process_dies_before_what_is_taken_back_was_booked(redis: Redis) -> None:
    window = Window(redis, len, ChunkSize())
    again = {"type": "turn.regenerated"}
    batch = [
        delivered(replied("t1", "a", "e1", 10), 1),
        delivered(replied("t2", "a", "e2", 20), 2),
        delivered(replied("t2", "b", "e3", 30) | again, 3),
        delivered(replied("t2", "c", "e4", 40) | again, 4),
        delivered({"type": "chat.rewound", "id": "e5", "turn": {"id": "t1"}}, 5),
    ]
    first = used(await window.apply(batch))
    second = used(await window.apply(batch))
    assert sorted(tokens for _, tokens in first) == [10, 20, 30, 40]
    assert second == first
    assert len(dict(first)) == 4


@pytest.mark.rule("C1")
async def test_another_turn_under_the_id_of_an_event_that_was_taken_back_is_nobodys(redis: Redis) -> None:
    window = Window(redis, len, ChunkSize())
    rewound = {"type": "chat.rewound", "id": "e3", "turn": {"id": "t1"}}
    await window.apply(
        [
            delivered(replied("t1", "a", "e1", 10), 1),
            delivered(replied("t2", "a", "e2", 20), 2),
            delivered(rewound, 3),
        ]
    )
    assert used(await window.apply([delivered(replied("t2", "z", "e2", 99), 4)])) == []


@pytest.mark.rule("W7")
async def test_what_waits_in_the_outbox_is_published_once_a_batch(redis: Redis) -> None:
    window = Window(redis, len, ChunkSize(2, 1_000))
    level = {"memory": {"level": "key_events"}}
    batch = [delivered(replied(f"t{n}", "a", f"e{n}", n, **level), n) for n in range(20)]
    for n in range(3):
        batch.append(
            delivered({"type": "message.deleted", "id": f"d{n}", "message": {"id": f"t{n}.u"}}, 20 + n)
        )
        batch.append(delivered(replied(f"s{n}", "a", f"f{n}", n), 30 + n))
    for _ in range(2):
        # and once more when the process dies
        done = [record for result in await window.apply(batch) for record in result.publish]
        chunks = [record for record in done if record.topic == Topics.CHUNKS]
        assert len(chunks) >= 8
        assert len(set(done)) == len(done)


@pytest.mark.rule("C1", "W7")
async def test_a_turn_id_that_is_used_again_after_a_rewind_is_booked_again(redis: Redis) -> None:
    window = Window(redis, len, ChunkSize())
    batch = [
        delivered(replied("t1", "a", "e1", 10), 1),
        delivered(replied("t2", "a", "e2", 20), 2),
        delivered({"type": "chat.rewound", "id": "e3", "turn": {"id": "t1"}}, 3),
        delivered(replied("t2", "b", "e4", 30), 4),
    ]
    first = used(await window.apply(batch))
    assert [tokens for _, tokens in first] == [10, 20, 30]
    assert len(dict(first)) == 3
    assert used(await window.apply(batch)) == first


@pytest.mark.rule("C1", "M9", "W5")
async def test_a_reply_that_says_the_same_once_more_was_paid_for_once_more(redis: Redis) -> None:
    window = Window(redis, len, ChunkSize())

    def saying(what: str, level: str) -> dict[str, Any]:
        return {"memory": {"ops": [{"op": "save", "text": what}], "level": level}}

    again = {"type": "turn.regenerated"}
    batch = [
        delivered(replied("t1", "a", "e1", 10, **saying("old", "balanced")), 1),
        delivered(replied("t1", "a", "e2", 10, **saying("new", "detailed")) | again, 2),
        # what the chat says by now, sent as a turn
        delivered(replied("t1", "a", "e3", 10), 3),
    ]
    works = await window.apply(batch)
    first = used(works)
    assert len(dict(first)) == len(first) == 2
    assert dict(used(await window.apply(batch))) == dict(first)
    assert await redis.hget("{c:c1}:w", "lv") == b"detailed"
    commands = [r.value for work in works for r in work.publish if r.topic == Topics.MEMORY_COMMANDS]
    kinds = [MEMORY_COMMAND.validate_json(value).type for value in commands]
    assert kinds == ["memory.ops", "memory.rollback", "memory.ops"]
    # it has moved the watermark: delivered again it is a repeat and no dead letter
    assert [work.repeated for work in await window.apply(batch[1:2])] == [True]
