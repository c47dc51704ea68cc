"""A needle in a message reaches every layer; taken back in any way it is nowhere: in no key, record, row or answer.

The summariser keeps texts word for word and quotes the needle as a rule, so that it really is in every tier. What stays
by rule is asserted as well: a fork's own copy, pins, what the user wrote, memories of a chat that was deleted without them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from schemas.chat import Level
from schemas.chunks import ChunkClosed
from schemas.delivery import Outgoing, Position, Record, Topics
from schemas.memories import MEMORY_COMMAND
from schemas.summaries import Rule, Summary, SummarySaved, Tier
from services.audit.service import audit
from services.credits.policy import parse
from services.failures import Poison
from services.memories.service import Delivered as Command
from services.memories.service import Memories
from services.state import keys
from services.summaries.port import Draft, SourceMessage
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from streams.credits import Credits
from tests.clickhouse import open_ledger
from tests.gateway import NOW, Recorder, app_on, started
from tests.integration.takeback_state import Quoting, Whole, delivered, recorded, summaries, whole

NEEDLE = "n33dle-x9z"
"""As long as every other text: 10 tokens, one a character."""

MODEL = {"name": "small", "context_window": 400}
"""A window of 100 tokens: five turns."""

BEFORE = 4
"""Turns before the one with the needle."""

AFTER = {
    "live": 1,
    "pending": 5,
    "chunk": 8,
    "recent": 7,
    "merged": 14,
    "long_term": 40,
    "memory": 7,
    "history": 7,
}
"""Turns after it, until the needle is in this layer."""

WAYS = ("regenerated", "rewound", "edited", "deleted", "chat deleted", "chat and memories deleted")


class Ruling(Quoting):
    """Quotes the needle as a rule as well."""

    async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
        draft = await super().chunk(messages, level=level, budget=budget)
        rules = tuple(
            Rule(quote=message.text, message_id=message.id, author=message.author)
            for message in messages
            if NEEDLE in message.text
        )
        body = draft.body.model_copy(update={"rules": rules, "facts": tuple(rule.quote for rule in rules)})
        return replace(draft, body=body)

    async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
        draft = await super().merge(sources, tier=tier, level=level, budget=budget)
        facts = tuple(fact for source in sources for fact in source.body.facts)
        return replace(draft, body=draft.body.model_copy(update={"facts": facts}))


class Pipeline:
    """All agents without a broker. `published` is everything that went out."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.window = Window(redis, len, ChunkSize(4, 1_000))
        self.summaries = summaries(redis, Ruling())
        self.memories = Memories(redis, len, lambda: NOW)
        self.published: list[Outgoing] = []
        self.sent: list[Delivered] = []
        self.chunks: list[ChunkClosed] = []
        self.commands = 0

    async def send(self, body: dict[str, Any], chat: str = "c1") -> Work | Poison:
        offset = len(self.sent) + 1
        event = delivered({"id": f"e{offset}", **body}, offset, chat=chat)
        self.sent.append(event)
        (result,) = await self.window.apply([event])
        await self.finish(result)
        return result

    async def finish(self, result: Work | Poison) -> None:
        self.published += result.publish
        if isinstance(result, Work) and result.confirmed is not None:
            await result.confirmed()
        for record in result.publish:
            if record.value is None:
                continue
            if record.topic == Topics.CHUNKS:
                self.chunks.append(ChunkClosed.model_validate_json(record.value))
            elif record.topic == Topics.SUMMARIES:
                await self.finish(await self.summaries.merge(SummarySaved.model_validate_json(record.value)))
            elif record.topic == Topics.MEMORY_COMMANDS:
                await self.command(record.value)

    async def command(self, value: bytes | dict[str, Any]) -> None:
        self.commands += 1
        parse_one = (
            MEMORY_COMMAND.validate_json if isinstance(value, bytes) else MEMORY_COMMAND.validate_python
        )
        command = Command(parse_one(value), Position("log-1", 0, self.commands), 0)  # type: ignore[arg-type]
        (done,) = await self.memories.apply([command])
        await self.finish(done)

    async def by_user(self, *ops: dict[str, Any]) -> None:
        at = NOW.isoformat()
        await self.command(
            {
                "type": "memory.ops",
                "id": f"u{self.commands}",
                "at": at,
                "user_id": "u1",
                "by": "user",
                "ops": ops,
            }
        )

    async def summarise(self) -> None:
        while self.chunks:
            await self.finish(await self.summaries.summarise(self.chunks.pop(0)))

    async def turn(self, number: int, text: str | None = None, **memory: Any) -> None:
        said = [(f"m{number}.{part}", text or f"text-{number:03d}.{part}"[:10]) for part in range(2)]
        assert isinstance(
            await self.send(recorded(f"t{number}", said[:2], f"r{number}", model=MODEL, memory=memory)), Work
        )

    async def reach(self, layer: str) -> Whole:
        """A chat whose turn t4 says the needle, which is in this layer now."""
        for number in range(BEFORE + 1 + AFTER[layer]):
            ops: list[dict[str, Any]] = []
            if number == BEFORE and layer in ("memory", "history"):
                ops = [{"op": "save", "id": "mem", "text": f"A fact: {NEEDLE}"}]
            if number == BEFORE + 2 and layer == "history":
                ops = [{"op": "update", "id": "mem", "text": "Another fact."}]
            await self.turn(number, NEEDLE if number == BEFORE else None, ops=ops)
            if layer not in ("live", "pending", "chunk"):
                await self.summarise()
        state = await whole(self.redis, "c1")
        assert self.layer(state) == {"memory": "recent", "history": "recent"}.get(layer, layer)
        return state

    @staticmethod
    def layer(state: Whole) -> str:
        """Where message 8, the needle, is."""
        seq = 2 * BEFORE
        for name, items in (("live", state.live), ("pending", state.pending)):
            if any(item.first <= seq < item.first + item.size for item in items):
                return name
        if any(chunk.span.first_seq <= seq <= chunk.span.last_seq for chunk in state.chunks):
            return "chunk"
        (summary,) = [s for s in state.summaries if s.span.first_seq <= seq <= s.span.last_seq]
        assert NEEDLE in summary.text
        return summary.tier.value

    async def take_back(self, way: str) -> None:
        match way:
            case "regenerated":
                # only the last turn can be
                await self.send({"type": "chat.rewound", "turn": {"id": f"t{BEFORE}"}})
                said = [("n1", "something"), ("n2", "other")]
                event = recorded(f"t{BEFORE}", said, "again", model=MODEL)
                result = await self.send({**event, "type": "turn.regenerated"})
            case "rewound":
                result = await self.send({"type": "chat.rewound", "turn": {"id": f"t{BEFORE - 1}"}})
            case "edited" | "deleted":
                for part in range(2):
                    message = {"id": f"m{BEFORE}.{part}"} | ({"text": "harmless"} if way == "edited" else {})
                    result = await self.send({"type": f"message.{way}", "message": message})
            case _:
                result = await self.send(
                    {"type": "chat.deleted", "forget_memories": way == "chat and memories deleted"}
                )
        assert isinstance(result, Work)


async def found(redis: Redis) -> set[str]:
    """Keys with the needle, in a field or a value, compressed or not."""
    reads = {b"string": "GET", b"hash": "HGETALL", b"list": "LRANGE", b"set": "SMEMBERS", b"zset": "ZRANGE"}
    there = set()
    for key in await redis.keys("*"):
        command = reads[await redis.type(key)]
        bounds = (0, -1) if command.endswith("RANGE") else ()
        if any(_has(part) for part in _parts(await redis.execute_command(command, key, *bounds))):
            there.add(key.decode())
    return there


def _parts(answer: Any) -> Iterable[bytes]:
    if isinstance(answer, bytes):
        yield answer
    elif isinstance(answer, dict):
        for pair in answer.items():
            yield from pair
    elif answer is not None:
        yield from answer


def _has(value: bytes) -> bool:
    try:
        value = zlib.decompress(value)
    except zlib.error:
        pass
    return NEEDLE.encode() in value


@pytest.fixture
def pipeline(redis: Redis) -> Pipeline:
    return Pipeline(redis)


async def answers(redis: Redis, chat: str = "c1") -> dict[str, str]:
    """Everything that a gateway tells of the chat and of its user's memories."""

    async def check(only: str | None, user: str | None) -> Any:
        return await audit(redis, None, chat=only, user=user, at_rest=True)

    told = {}
    async with started(app_on(redis, Recorder(), audit=check)) as http:
        for path in (
            f"/v1/chats/{chat}/context",
            f"/v1/chats/{chat}/memory",
            "/v1/users/u1/memories",
            "/v1/users/u1/memories/history",
        ):
            response = await http.get(path)
            assert response.status_code in (200, 404), response.text
            told[path] = response.text
        told["audit"] = (await http.post("/v1/audit")).text
    return told


async def sound(redis: Redis) -> None:
    report = await audit(redis, None, at_rest=True)
    assert [finding for finding in report.findings if finding.check != "usage"] == []


@pytest.mark.rule("W7", "M9")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layer", AFTER)
async def test_what_is_taken_back_is_nowhere(pipeline: Pipeline, layer: str, way: str) -> None:
    redis = pipeline.redis
    await pipeline.reach(layer)
    assert await found(redis)
    assert any(NEEDLE in told for told in (await answers(redis)).values())
    last = f"t{BEFORE + AFTER[layer]}"
    await pipeline.send({"type": "chat.forked", "source": {"chat": "c1", "turn": last}}, "f1")
    forked = {key for key in await found(redis) if key.startswith("{c:f1}:")}
    assert forked

    published = len(pipeline.published)
    await pipeline.take_back(way)
    kept = layer in ("memory", "history") and way == "chat deleted"
    memories = {key for key in await found(redis) if key.startswith("{u:")}
    # at once: not only when what was taken apart is summarised again
    assert await found(redis) == forked | memories
    assert bool(memories) is kept

    async def gone() -> None:
        assert await found(redis) - forked == memories
        assert not [
            record.topic
            for record in pipeline.published[published:]
            if NEEDLE in (record.value or b"").decode()
        ]
        told = await answers(redis)
        quoting = {path for path, answer in told.items() if NEEDLE in answer}
        assert quoting <= {"/v1/users/u1/memories", "/v1/users/u1/memories/history"}
        assert bool(quoting) is kept

    await gone()
    pipeline.chunks = [chunk for chunk in pipeline.chunks if chunk.chat.id == "c1"]
    await pipeline.summarise()
    await gone()
    # the whole log once more, and then the chat goes on
    for event in list(pipeline.sent):
        (result,) = await pipeline.window.apply([event])
        await pipeline.finish(result)
    await pipeline.summarise()
    await gone()
    if not way.startswith("chat"):
        for number in range(100, 130):
            await pipeline.turn(number)
            await pipeline.summarise()
        await gone()
        # a fork from after it has nothing of it
        source = {"chat": "c1", "turn": "t129"}
        assert isinstance(await pipeline.send({"type": "chat.forked", "source": source}, "f2"), Work)
        assert not [key for key in await found(redis) if key.startswith("{c:f2}:")]
    assert {key for key in await found(redis) if key.startswith("{c:f1}:")}
    await sound(redis)


@pytest.mark.rule("M8", "M9")
@pytest.mark.parametrize("way", WAYS)
async def test_what_was_pinned_or_written_by_the_user_stays_by_rule(pipeline: Pipeline, way: str) -> None:
    await pipeline.reach("memory")
    await pipeline.by_user({"op": "pin", "id": "mem"}, {"op": "save", "id": "own", "text": f"I say {NEEDLE}"})
    await pipeline.take_back(way)
    await pipeline.summarise()
    there = await found(pipeline.redis)
    assert there == {
        key
        for key in there
        if key in ("{u:u1}:h", keys.scope("u1", "global"), keys.scope("u1", "character:mira"))
    }
    assert len(there) == 3
    await sound(pipeline.redis)


@pytest.mark.rule("M9")
async def test_a_memory_that_the_user_corrected_goes_on_without_what_it_replaced(pipeline: Pipeline) -> None:
    await pipeline.reach("memory")
    await pipeline.by_user({"op": "update", "id": "mem", "text": "As I say it."})
    await pipeline.take_back("rewound")
    assert await found(pipeline.redis) == set()
    told = await answers(pipeline.redis)
    assert "As I say it." in told["/v1/users/u1/memories"]
    await pipeline.summarise()
    await sound(pipeline.redis)


@pytest.mark.rule("W7")
@pytest.mark.parametrize("way", WAYS)
async def test_an_answer_that_was_on_its_way_comes_to_nothing(pipeline: Pipeline, way: str) -> None:
    await pipeline.reach("chunk")
    waiting = list(pipeline.chunks)
    pipeline.chunks.clear()

    class Slow(Ruling):
        """Something is taken back while it thinks."""

        async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
            draft = await super().chunk(messages, level=level, budget=budget)
            if any(NEEDLE in message.text for message in messages):
                await pipeline.take_back(way)
            return draft

    service = summaries(pipeline.redis, Slow())
    for chunk in waiting:
        await pipeline.finish(await service.summarise(chunk))
    assert await found(pipeline.redis) == set()
    assert not [
        record
        for record in pipeline.published
        if record.topic == Topics.SUMMARIES and _has(record.value or b"")
    ]
    await pipeline.summarise()
    assert await found(pipeline.redis) == set()
    await sound(pipeline.redis)


@pytest.mark.rule("W7", "C1")
async def test_the_ledger_never_had_it(pipeline: Pipeline, tmp_path: Path) -> None:
    await pipeline.reach("long_term")
    connection, ledger = await open_ledger(f"chdb:{tmp_path}/ledger")
    try:
        credits = Credits(ledger, parse({"default": [{"input": "0.001", "output": "0.004"}]}))
        uses = [
            record.value for record in pipeline.published if record.topic == Topics.USAGE and record.value
        ]
        await credits.handle(
            [Record(Topics.USAGE, 0, offset, b"u1", value, (), 0) for offset, value in enumerate(uses)]
        )
        rows = await connection.rows("SELECT * FROM credits")
        assert len(rows) == len(uses) > 20
        assert NEEDLE not in repr(rows)
    finally:
        await ledger.close()
