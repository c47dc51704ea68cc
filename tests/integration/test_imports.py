"""Imported histories and the demo's conversation in the window of a real Redis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from redis.asyncio import Redis

from schemas.delivery import Outgoing, Position
from schemas.turns import TURN_EVENT
from services.failures import Poison
from services.imports.port import ImportRefused
from services.imports.service import run
from services.state.keys import ChatKeys
from services.tokens.counter import default_counter
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from streams.demo import conversation

DATA = Path(__file__).parents[1] / "unit" / "data" / "imports"


class Log:
    """A topic of one partition, read by the window as it is written."""

    def __init__(self, redis: Redis) -> None:
        self._window = Window(redis, default_counter(), ChunkSize())
        self._offset = 0
        self.results: list[Work | Poison] = []

    async def publish(self, records: Sequence[Outgoing]) -> None:
        await self.apply(TURN_EVENT.validate_json(record.value) for record in records)

    async def apply(self, events: Iterable[object]) -> None:
        batch = []
        for event in events:
            batch.append(Delivered(event, Position("epoch", 0, self._offset), 1_796_029_200_000))  # type: ignore[arg-type]
            self._offset += 1
        self.results += await self._window.apply(batch)

    def take(self) -> list[Work | Poison]:
        results, self.results = self.results, []
        return results


async def recorded(redis: Redis, chat: str) -> int:
    """Messages that the chat has had."""
    return int(await redis.hget(ChatKeys.of(chat).window, "n") or 0)  # type: ignore[misc]


@pytest.mark.parametrize("path", sorted(DATA.iterdir()), ids=lambda path: path.name)
async def test_importing_twice_doubles_nothing(redis: Redis, path: Path) -> None:
    log = Log(redis)
    report = await run(path, log.publish)
    first = log.take()
    assert len(first) == report.turns > 0
    assert all(isinstance(result, Work) and not result.repeated for result in first)
    await run(path, log.publish, batch=1)
    second = log.take()
    assert len(second) == report.turns
    assert all(isinstance(result, Work) and result.repeated for result in second)


async def test_a_turn_that_has_grown_is_refused_and_not_doubled(redis: Redis, tmp_path: Path) -> None:
    """Without a checkpoint the grown turn is one turn id with other messages: visible, and nothing twice."""
    path = tmp_path / "chat.jsonl"
    path.write_text('{"role": "user", "content": "a"}\n{"role": "assistant", "content": "b"}\n')
    log = Log(redis)
    await run(path, log.publish)
    with path.open("a") as file:
        file.write('{"role": "assistant", "content": "c"}\n')
    await run(path, log.publish)
    first, grown = log.take()
    assert isinstance(first, Work)
    assert isinstance(grown, Poison)
    assert "turn.id" in str(grown)
    assert await recorded(redis, "jsonl-chat") == 2


async def test_a_refused_import_writes_nothing(redis: Redis, tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_text("{}")
    with pytest.raises(ImportRefused):
        await run(path, Log(redis).publish)
    assert await redis.dbsize() == 0


@pytest.mark.rule("W1", "S1")
async def test_the_demo_conversation_fills_three_tiers(redis: Redis) -> None:
    log = Log(redis)
    events = list(conversation.turns())
    await log.apply(events)
    results = log.take()
    assert all(isinstance(result, Work) and not result.repeated for result in results)
    assert await recorded(redis, conversation.CHAT) == sum(len(event.messages) for event in events)
    chunks = await redis.hlen(ChatKeys.of(conversation.CHAT).chunks)  # type: ignore[misc]
    assert chunks >= 20
