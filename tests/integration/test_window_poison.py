"""What nobody can understand is a dead letter with its value, but under the key of a deleted chat without."""

from __future__ import annotations

from typing import Any, cast

import pytest
from redis.asyncio import Redis

from schemas.delivery import Outgoing, Record, Topics
from services.failures import Poison
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from streams import window
from streams.runtime.agent import Batched
from tests.integration.takeback_state import EPOCH, delivered, recorded

BROKEN = b'{"type": "turn.recorded", "chat": {"id": "c1"}, "text": "secret"}'


class Counting:
    """A Redis whose pipelines are counted: the window's scripts need none."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self.asked = 0

    def pipeline(self, **options: Any) -> Any:
        self.asked += 1
        return self._redis.pipeline(**options)


def event(body: dict[str, Any], chat: str = "c1") -> bytes:
    return delivered(body, 0, chat=chat).event.model_dump_json().encode()


def record(offset: int, value: bytes | None, key: bytes | None = b"c1") -> Record:
    return Record(Topics.TURNS, 0, offset, key, value, (), 1_790_000_000_000 + offset)


@pytest.mark.rule("W7")
async def test_no_dead_letter_keeps_the_text_of_a_deleted_chat(redis: Redis) -> None:
    counting = Counting(redis)
    spec = window.agent(Window(redis, len, ChunkSize()), cast(Redis, counting), EPOCH, 100)
    assert isinstance(spec.work, Batched)
    handle = spec.work.handle
    turn = event(recorded("t1", [("m1", "secret")], "e1"))
    good, kept = await handle([record(0, turn), record(1, BROKEN)])
    assert isinstance(good, Work)
    assert isinstance(kept, Poison)
    assert (kept.keep, kept.publish) == (True, ())
    counting.asked = 0
    deletion = event({"type": "chat.deleted", "id": "gone"})
    results = await handle(
        [
            record(2, deletion),
            record(3, BROKEN),
            record(4, b"\xff secret"),
            record(5, event(recorded("t1", [("m1", "of another")], "e1"), "c2")),
            record(6, BROKEN, b"c2"),
            record(7, BROKEN, None),
            record(8, BROKEN, b"\xff"),
        ]
    )
    for late in results[1:4]:
        assert isinstance(late, Poison)
        assert (str(late), late.keep) == ("chat.id: this chat was deleted", False)
        assert late.publish == (Outgoing(Topics.TURNS, b"c1", None),)
    for other in results[4:]:
        assert isinstance(other, Poison)
        assert other.keep
    assert counting.asked == 1
    # what can be read asks nothing more than it did
    await handle([record(9, event(recorded("t2", [("m2", "words")], "e2"), "c2"), b"c2"), record(10, None)])
    assert counting.asked == 1
