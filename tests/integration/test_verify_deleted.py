"""`afterturn verify-deleted`: a deleted chat is gone, what is kept is named, and what is left is found, wherever it lies."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from schemas.delivery import Outgoing, Position, Topics, dead_letters
from schemas.memories import MEMORY_COMMAND
from services.audit.deleted import Verdict, verify
from services.credits.ledger import ClickHouseLedger
from services.failures import Poison
from services.memories.service import Delivered as Command
from services.memories.service import Memories
from services.settings import Settings
from services.state import keys
from services.takeback.deletion import TOPICS
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from streams.chat_search import ChatSearch
from streams.cli.verify_deleted import lines
from streams.runtime.publisher import Publisher
from tests.clickhouse import open_ledger, row
from tests.integration.takeback_state import Quoting, delivered, recorded, summaries
from tests.memories import START
from tests.stack import Broker

K = keys.ChatKeys.of("c1")


class Pipeline:
    """The agents that a chat's events go through, without their loops; every event is on the log."""

    def __init__(
        self, redis: Redis, ledger: ClickHouseLedger, publisher: Publisher, settings: Settings
    ) -> None:
        self.redis, self.ledger, self.publisher = redis, ledger, publisher
        self.window = Window(redis, len, ChunkSize(4, 1_000))
        self.summaries = summaries(redis, Quoting())
        self.memories = Memories(redis, len, lambda: START)
        self.search = ChatSearch(settings)
        self.offset = self.commands = 0

    async def send(self, body: dict[str, Any], chat: str = "c1", key: str | None = None) -> Work | Poison:
        self.offset += 1
        event = delivered({"id": f"e{self.offset}", **body}, self.offset, chat=chat)
        await self.publish(
            Outgoing(Topics.TURNS, (key or chat).encode(), event.event.model_dump_json().encode())
        )
        return await self.handle(event)

    async def handle(self, event: Delivered) -> Work | Poison:
        (result,) = await self.window.apply([event])
        await self.finish(result)
        return result

    async def finish(self, result: Work | Poison) -> None:
        await self.publish(*result.publish)
        for record in result.publish:
            if record.topic == Topics.MEMORY_COMMANDS and record.value is not None:
                self.commands += 1
                command = Command(
                    MEMORY_COMMAND.validate_json(record.value), Position("log-1", 0, self.commands), 0
                )
                (done,) = await self.memories.apply([command])
                await self.finish(done)
        if isinstance(result, Work) and result.confirmed is not None:
            await result.confirmed()

    async def publish(self, *records: Outgoing) -> None:
        await self.publisher.publish(records)

    async def chat(self, chat: str = "c1") -> None:
        """Twenty turns, two of which save a memory."""
        for number in range(20):
            said = [(f"m{number}.{part}", f"secret {number}") for part in range(2)]
            ops = [{"op": "save", "text": f"secret {number}", "id": f"s{chat}{number}"}] if number < 2 else []
            await self.send(recorded(f"t{number}", said, f"{chat}e{number}", memory={"ops": ops}), chat)

    async def verdict(self, log: bool = True, chat: str = "c1") -> Verdict:
        seen: list[int] = []
        found = await verify(self.redis, self.ledger, self.search if log else None, chat, seen.append)
        assert seen == sorted(seen) != []
        assert "secret" not in json.dumps(found.as_dict())
        return found


@pytest.fixture
async def pipeline(broker: Broker, redis: Redis, redis_url: str, tmp_path: Path) -> AsyncIterator[Pipeline]:
    settings = Settings(kafka=broker.bootstrap, redis=redis_url)
    _, ledger = await open_ledger(f"chdb:{tmp_path}/ledger")
    publisher = Publisher(settings)
    await publisher.start()
    yield Pipeline(redis, ledger, publisher, settings)
    await publisher.stop()
    await ledger.close()


def left(verdict: Verdict) -> str:
    return "; ".join(f"{each.store}: {each.detail}" for each in verdict.left)


def kept(verdict: Verdict) -> str:
    return "; ".join(f"{each.store}: {each.detail}" for each in verdict.kept)


@pytest.mark.rule("W7", "C1")
async def test_a_deleted_chat_is_gone_and_what_is_kept_is_named(pipeline: Pipeline) -> None:
    await pipeline.chat()
    await pipeline.chat("c2")
    await pipeline.ledger.book([row(1), row(2), row(3, chat_id="c2")])
    before = await pipeline.verdict()
    assert "redis: the chat is not deleted" in left(before)
    assert f"{Topics.TURNS}: 20 records" in left(before)
    await pipeline.send({"type": "chat.deleted"})
    after = await pipeline.verdict()
    assert after.left == []
    assert f"{Topics.TURNS}: 21 records before a tombstone" in kept(after)
    assert "clickhouse: 2 rows" in kept(after)
    assert "2 saved memories that came from the chat, 2 changes" in kept(after)
    assert f"{Topics.MEMORY_COMMANDS}: 2 commands" in kept(after)
    assert {each.store for each in after.searched} >= {*TOPICS, Topics.MEMORY_COMMANDS, "redis", "clickhouse"}
    shown = lines(after.as_dict())
    assert shown[-1] == "chat c1: gone"
    assert f"searched {Topics.TURNS}: 42 records in 12 partitions" in shown


@pytest.mark.rule("W7")
async def test_a_chat_that_never_was_is_no_proof(pipeline: Pipeline) -> None:
    await pipeline.chat()
    other = await pipeline.verdict(chat="c1-mistyped")
    assert (other.ok, other.known) == (True, False)
    assert lines(other.as_dict())[-1].startswith("chat c1-mistyped: UNKNOWN")
    assert (await pipeline.verdict()).known
    # drafts are a trace as well
    await pipeline.redis.set("gateway:idempotency:1", '0 {"drafts": [{"chat": "c1-mistyped"}]}')
    drafted = await pipeline.verdict(chat="c1-mistyped")
    assert (drafted.ok, drafted.known) == (False, True)


@pytest.mark.rule("W7", "M9")
async def test_memories_of_its_replies_are_gone_where_the_deletion_said_so(pipeline: Pipeline) -> None:
    await pipeline.chat()
    history = keys.UserKeys.of("u1").history
    written = await pipeline.redis.hgetall(history)
    await pipeline.send({"type": "chat.deleted", "forget_memories": True})
    verdict = await pipeline.verdict()
    assert verdict.left == []
    assert "saved memories" not in kept(verdict).replace("commands on saved memories", "")
    # as if it had not been carried out
    await pipeline.redis.hset(history, mapping=written)
    assert "2 changes by the chat's replies" in left(await pipeline.verdict())


@pytest.mark.rule("W7")
async def test_what_is_left_is_found_in_every_store(pipeline: Pipeline) -> None:
    await pipeline.chat()
    await pipeline.send({"type": "chat.deleted"})
    turn = recorded("t99", [("m99", "secret")], "late")
    # on the log alone: the agent has not come to it
    event = delivered(turn, 99)
    value = event.event.model_dump_json().encode()
    await pipeline.publish(Outgoing(Topics.TURNS, b"c1", value))
    verdict = await pipeline.verdict()
    assert [each.store for each in verdict.left] == [Topics.TURNS]
    assert "no tombstone follows" in left(verdict)
    # and then it is answered
    assert isinstance(await pipeline.handle(event), Poison)
    assert (await pipeline.verdict()).ok
    # a dead letter, and one that nobody could sort
    letters = dead_letters(Topics.TURNS, "window")
    await pipeline.publish(Outgoing(letters, b"c1", value), Outgoing(letters, b"another", value))
    verdict = await pipeline.verdict()
    assert [each.store for each in verdict.left] == [letters, letters]
    assert "another key" in left(verdict)
    assert lines(verdict.as_dict())[-1] == "chat c1: NOT GONE, 2 places"


@pytest.mark.rule("W7")
async def test_a_dead_letter_without_a_value_hides_no_other(pipeline: Pipeline) -> None:
    await pipeline.chat()
    await pipeline.send({"type": "chat.deleted"})
    letters = dead_letters(Topics.TURNS, "window")
    await pipeline.publish(Outgoing(letters, b"c1", b'{"chat": {"id": "c1"}, "text": "secret"}'))
    await pipeline.publisher.forward(letters, b"c1", None, [("afterturn-kind", b"poison")])
    verdict = await pipeline.verdict()
    assert [each.store for each in verdict.left] == [letters]
    assert f"{letters}: 1 dead letters of late events, without their value" in kept(verdict)
    await pipeline.publish(Outgoing(letters, b"c1", None))
    assert (await pipeline.verdict()).ok


@pytest.mark.rule("W7")
async def test_an_id_is_found_however_it_is_escaped(pipeline: Pipeline) -> None:
    turn = {"chat": {"id": "é/1"}, "text": "secret"}
    ways = [
        json.dumps(turn, ensure_ascii=False),
        json.dumps(turn),
        json.dumps(turn).replace("00e9", "00E9").replace("/", "\\/"),
    ]
    for way in ways:
        await pipeline.publish(Outgoing(Topics.TURNS, b"another", way.encode()))
        command = {"type": "memory.ops", "source": {"chat": "é/1", "turn": "t"}}
        value = json.dumps(command, ensure_ascii=way is not ways[0]).encode()
        await pipeline.publish(Outgoing(Topics.MEMORY_COMMANDS, b"u1", value))
    answer = '0 {"drafts": [{"text": "secret", "chat": "\\u00e9/1"}]}'
    await pipeline.redis.set("gateway:idempotency:1", answer)
    verdict = await pipeline.verdict(chat="é/1")
    assert f"{Topics.TURNS}: 3 records" in left(verdict)
    assert "drafts of memories from the chat" in left(verdict)
    assert f"{Topics.MEMORY_COMMANDS}: 3 commands" in kept(verdict)


@pytest.mark.rule("W7")
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("HSET", K.summaries, "s", "secret"), "{c:c1}:s"),
        (("SET", "{c:c1}:new", "secret"), "{c:c1}:new"),
        (("HSET", K.window, "cj", "secret"), "fields of"),
        (("HSET", keys.outbox("c1", "merge"), "x", "secret"), "still to be published"),
        (("SET", "gateway:idempotency:1", '0 {"drafts": [{"text": "secret", "chat": "c1"}]}'), "drafts of"),
    ],
)
@pytest.mark.parametrize("bare_broker", ["embedded"], indirect=True)
async def test_what_is_left_in_redis_is_found(
    pipeline: Pipeline, command: tuple[str, ...], expected: str
) -> None:
    await pipeline.chat()
    await pipeline.send({"type": "chat.deleted"})
    assert (await pipeline.verdict(log=False)).ok
    await pipeline.redis.execute_command(*command)
    assert expected in left(await pipeline.verdict(log=False))
