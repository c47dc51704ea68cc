"""Regenerating, rewinding, editing, deleting and forking, case by case (W7, W8). test_takeback_model.py has any history."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from schemas import limits
from schemas.chat import Level
from schemas.delivery import Outgoing, Topics
from schemas.memories import MemoryOps, MemoryRollback
from schemas.summaries import Tier
from schemas.usage import UsageBooked
from services.context import store as contexts
from services.failures import Poison
from services.state import ids, keys
from services.summaries.port import Draft, SourceMessage
from services.takeback import rollbacks
from services.takeback.policy import Plan
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize, digest
from services.work import Work
from tests.integration.takeback_state import (
    Quoting,
    Whole,
    announced,
    check,
    delivered,
    recorded,
    summaries,
    whole,
)

MODEL = {"name": "small", "context_window": 400}
"""A window of 100 tokens, a token a character: ten texts."""
CHUNK = ChunkSize(4, 1_000)
K = keys.ChatKeys.of("c1")


class Chat:
    """Delivers events of chats, and does what the agents would do with what comes of them."""

    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        self.window = Window(redis, len, CHUNK)
        self.quoting = Quoting()
        self.summaries = summaries(redis, self.quoting)
        self.offset = 0
        self.turns: list[tuple[str, str, list[tuple[str, str | None]]]] = []

    def event(self, body: dict[str, Any], chat: str = "c1") -> Delivered:
        self.offset += 1
        return delivered({"id": f"e{self.offset}", **body}, self.offset, chat=chat)

    async def apply(self, event: Delivered) -> Work | Poison:
        (result,) = await self.window.apply([event])
        return result

    async def take(self, body: dict[str, Any], chat: str = "c1") -> Work:
        """An event that has its effect; what it announces is confirmed, and chunks are not summarised."""
        result = await self.apply(self.event(body, chat))
        assert isinstance(result, Work), result
        if result.confirmed is not None:
            await result.confirmed()
        return result

    async def refused(self, body: dict[str, Any], chat: str = "c1") -> str:
        """An event that changes nothing; why."""
        before = await whole(self.redis, chat)
        result = await self.apply(self.event(body, chat))
        assert isinstance(result, Poison)
        after = await whole(self.redis, chat)
        same = {name: value for name, value in after.fields.items() if name != "of"}
        assert same == {name: value for name, value in before.fields.items() if name != "of"}
        return str(result)

    def turn(self, number: int, **fields: Any) -> dict[str, Any]:
        said = [(f"m{number}.0", f"asks-{number:05d}"), (f"m{number}.1", f"says-{number:05d}")]
        return recorded(f"t{number}", said, f"r{number}", model=MODEL, **fields)

    async def record(self, *numbers: int, chat: str = "c1", **fields: Any) -> None:
        """Turns t0, t1, ... of two messages; their chunks are summarised and merged at once."""
        for number in numbers:
            work = await self.take(self.turn(number, **fields), chat)
            if chat == "c1":
                said = self.turn(number)["messages"]
                self.turns.append((f"t{number}", "", [(m["id"], m["text"]) for m in said]))
            await self.settle(work)

    async def settle(self, work: Work) -> None:
        chunks, _ = announced(work)
        for chunk in chunks:
            saved = await self.summaries.summarise(chunk)
            await self._merge(saved)

    async def _merge(self, work: Work) -> None:
        if work.confirmed is not None:
            await work.confirmed()
        for event in announced(work)[1]:
            await self._merge(await self.summaries.merge(event))

    async def state(self, chat: str = "c1") -> Whole:
        state = await whole(self.redis, chat)
        if chat == "c1":
            check(state, self.turns)
        return state


@pytest.fixture
def chat(redis: Redis) -> Chat:
    return Chat(redis)


def rewound(turn: int | None) -> dict[str, Any]:
    return {"type": "chat.rewound", "turn": None if turn is None else {"id": f"t{turn}"}}


def tiers(state: Whole) -> list[tuple[Tier, int, int]]:
    return [(s.tier, s.span.first_seq, s.span.last_seq) for s in state.summaries]


def of(published: Sequence[Outgoing], topic: str) -> list[bytes]:
    return [record.value for record in published if record.topic == topic and record.value is not None]


# 90 turns: messages 0..179; 10 are live, 170 are in 42 chunks of 4 (0..167) and 2 wait


async def test_the_history_of_these_tests(chat: Chat) -> None:
    await chat.record(*range(90))
    state = await chat.state()
    assert tiers(state) == [
        (Tier.long_term, 0, 127),
        (Tier.merged, 128, 143),
        (Tier.merged, 144, 159),
        (Tier.recent, 160, 163),
        (Tier.recent, 164, 167),
    ]
    assert (state.number("lm"), state.number("pm"), state.number("co")) == (10, 2, 0)


@pytest.mark.rule("W7")
@pytest.mark.parametrize(
    ("last", "left", "again"),
    [
        (88, [(Tier.long_term, 0, 127), (Tier.merged, 128, 143), (Tier.merged, 144, 159)], 0),
        (80, [(Tier.long_term, 0, 127), (Tier.merged, 128, 143), (Tier.merged, 144, 159)], 1),
        (79, [(Tier.long_term, 0, 127), (Tier.merged, 128, 143), (Tier.merged, 144, 159)], 0),
        (70, [(Tier.long_term, 0, 127), (Tier.recent, 128, 131), (Tier.recent, 132, 135)], 1),
        (60, [(Tier.long_term, 0, 63), (Tier.merged, 64, 79), (Tier.merged, 80, 95)], 1),
        (1, [(Tier.recent, 0, 3)], 0),
        (0, [], 1),
    ],
)
async def test_a_rewind_takes_apart_what_spans_the_point_and_leaves_the_rest(
    chat: Chat, last: int, left: list[Any], again: int
) -> None:
    await chat.record(*range(90))
    before = {s.id: s for s in (await chat.state()).summaries}
    leaves = (await chat.state()).leaves
    calls = chat.quoting.calls
    await chat.take(rewound(last))
    del chat.turns[last + 1 :]
    state = await chat.state()
    assert tiers(state)[: len(left)] == left
    end = 2 * (last + 1)
    assert all(after == leaves[id] for id, after in state.leaves.items())
    assert sum(leaf.span.last_seq < end for leaf in leaves.values()) == len(state.leaves)
    assert all(s.id in before or s.generation == 0 for s in state.summaries)
    assert chat.quoting.calls == calls
    # the window is full again, as far as there is something to fill it with
    assert state.number("lm") == min(end, 10)
    # and the chat goes on: of what was summarised, at most the chunk that spanned the point is summarised again
    await chat.record(*range(200, 206))
    new = [leaf for id, leaf in (await chat.state()).leaves.items() if id not in leaves]
    assert len([leaf for leaf in new if leaf.span.first_seq < min(end, 168)]) <= again


@pytest.mark.rule("W7", "W1")
async def test_what_is_filled_in_from_the_archive_leaves_again_without_a_second_summary(chat: Chat) -> None:
    await chat.record(*range(90))
    await chat.take(rewound(79))
    del chat.turns[80:]
    state = await chat.state()
    assert (state.number("lf"), state.number("co"), state.number("sm")) == (150, 160, 160)
    snapshot = await contexts.read(chat.redis, "c1")
    assert snapshot is not None
    assert [message.seq for message in snapshot.live] == list(range(150, 160))
    assert list(snapshot.pending) == []
    calls = chat.quoting.calls
    await chat.record(*range(100, 105))
    state = await chat.state()
    assert (state.number("lf"), state.number("pm")) == (160, 0)
    assert chat.quoting.calls == calls


@pytest.mark.rule("W7")
async def test_a_rewind_to_nothing_and_a_rewind_of_nothing(chat: Chat) -> None:
    await chat.record(*range(20))
    before = await chat.state()
    await chat.take(rewound(19))
    assert (await chat.state()).fields | {"of": ""} == before.fields | {"of": ""}
    await chat.take(rewound(None))
    chat.turns.clear()
    state = await chat.state()
    assert (state.number("n"), state.summaries, state.live) == (0, [], [])
    await chat.record(0, 1)


@pytest.mark.rule("W7")
async def test_a_chunk_that_waits_for_its_summary_is_cut_as_well(chat: Chat, redis: Redis) -> None:
    for number in range(9):
        await chat.take(chat.turn(number))
        chat.turns.append((f"t{number}", "", [(m["id"], m["text"]) for m in chat.turn(number)["messages"]]))
    [old, _] = (await chat.state()).chunks
    await chat.take(rewound(0))
    del chat.turns[1:]
    state = await chat.state()
    assert (state.chunks, state.number("lm")) == ([], 2)
    # what was under way for it is dropped when it arrives
    work = await chat.summaries.summarise(old)
    assert (work.repeated, work.publish) == (True, ())


@pytest.mark.rule("W1", "W4", "W6", "W7")
async def test_the_window_is_filled_with_what_waits_for_its_summary_and_the_chunks_stay(
    chat: Chat, redis: Redis
) -> None:
    for number in range(20):
        await chat.take(chat.turn(number))
        chat.turns.append((f"t{number}", "", [(m["id"], m["text"]) for m in chat.turn(number)["messages"]]))
    before = (await chat.state()).chunks
    assert [(chunk.span.first_seq, chunk.span.last_seq) for chunk in before] == [
        (0, 3), (4, 7), (8, 11), (12, 15), (16, 19), (20, 23), (24, 27)
    ]  # fmt: skip
    del chat.turns[9:]
    async with redis.pubsub(ignore_subscribe_messages=True) as listener:
        await listener.subscribe(keys.channel("c1"))
        await listener.get_message(timeout=5)
        await chat.take(rewound(8))
        hints = [await _hint(listener)]
        state = await chat.state()
        # messages 8..17: the last two were cut from their chunk, the others are in chunks as well
        assert [item.first for item in state.live] == [8, 10, 12, 14, 16]
        assert (state.chunks, state.number("co"), state.pending) == (before[:4], 16, [])
        # their summaries may be under way, and are used; what is live stays live
        for chunk in before[:3]:
            await chat.summaries.summarise(chunk)
            hints.append(await _hint(listener))
        assert await chat.state()
        # what leaves and waits is pending, what has its summary is dropped
        for number in range(100, 104):
            await chat.take(chat.turn(number))
            said = [(m["id"], m["text"]) for m in chat.turn(number)["messages"]]
            chat.turns.append((f"t{number}", "", said))
            hints.append(await _hint(listener))
        await chat.state()
    assert [hint["pending_messages"] for hint in hints] == [8, 4, 0, 0, 0, 0, 2, 4]
    snapshot = await contexts.read(redis, "c1")
    assert snapshot is not None
    assert [message.seq for message in snapshot.pending] == [12, 13, 14, 15]


async def _hint(listener: PubSub) -> dict[str, Any]:
    """The next one about the window."""
    async with asyncio.timeout(5):
        while True:
            message = await listener.get_message(timeout=5)
            if message is not None:
                hint: dict[str, Any] = json.loads(message["data"])
                if hint["type"] == "window":
                    return hint


@pytest.mark.rule("W7", "C1")
async def test_what_the_model_answers_after_the_chunk_was_taken_back_is_dropped_and_booked(
    chat: Chat, redis: Redis
) -> None:
    class Slow(Quoting):
        async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
            draft = await super().chunk(messages, level=level, budget=budget)
            await chat.take(rewound(0))
            return draft

    for number in range(8):
        work = await chat.take(chat.turn(number))
    [chunk] = announced(work)[0] or (await whole(redis, "c1")).chunks[:1]
    work = await summaries(redis, Slow()).summarise(chunk)
    assert work.repeated
    assert [UsageBooked.model_validate_json(value).tokens_in for value in of(work.publish, Topics.USAGE)] == [
        10
    ]
    assert (await whole(redis, "c1")).leaves == {}


@pytest.mark.rule("W7", "C1")
async def test_regenerating_replaces_the_last_turn_and_books_the_new_reply(chat: Chat, redis: Redis) -> None:
    await chat.record(*range(20), usage={"prompt_tokens": 5, "completion_tokens": 7})
    said = [("m19.0", "asks-00019"), ("m19.new", "better-one")]
    event = recorded("t19", said, "again", model=MODEL, usage={"prompt_tokens": 5, "completion_tokens": 9})
    again = chat.event(event | {"type": "turn.regenerated"})
    work = await chat.apply(again)
    assert isinstance(work, Work)
    chat.turns[19] = ("t19", "", list(said))
    state = await chat.state()
    assert state.number("g") == 1
    [booked] = [UsageBooked.model_validate_json(value) for value in of(work.publish, Topics.USAGE)]
    assert booked.id == ids.derive("usage", "reply", "c1", "t19", digest(again.event))
    assert booked.tokens_out == 9


@pytest.mark.rule("W7")
async def test_what_cannot_be_taken_back_says_why_and_changes_nothing(chat: Chat) -> None:
    await chat.record(*range(20))
    again = chat.turn(3) | {"type": "turn.regenerated", "id": "x1"}
    assert (
        await chat.refused(again) == "turn.id: is not the chat's last turn; only that one can be regenerated"
    )
    stolen = recorded("t19", [("m3.0", "mine")], "x2") | {"type": "turn.regenerated"}
    assert "m3.0 belongs to a message of an earlier turn" in await chat.refused(stolen)
    unknown = recorded("t99", [("n", "text")], "x3") | {"type": "turn.regenerated"}
    assert await chat.refused(unknown) == "turn.id: this chat has no turn t99"
    assert await chat.refused(rewound(99)) == "turn.id: this chat has no turn t99"
    edit = {"type": "message.edited", "message": {"id": "nobody", "text": "x"}}
    assert await chat.refused(edit) == "message.id: this chat has no message nobody"
    await chat.take({"type": "message.deleted", "message": {"id": "m3.0"}})
    edit = {"type": "message.edited", "message": {"id": "m3.0", "text": "x"}}
    assert await chat.refused(edit) == "message.id: message m3.0 was deleted"
    assert await chat.refused(rewound(1), "c2") == "chat.id: this chat has no turns"
    fork = {"type": "chat.forked", "source": {"chat": "c1", "turn": "t3"}}
    assert "has turns already" in await chat.refused(fork)
    chat.turns[3][2][0] = ("m3.0", None)
    await chat.state()


async def test_another_partition_and_an_older_writer_are_refused(chat: Chat) -> None:
    await chat.record(*range(3))
    event = chat.event(rewound(1))
    elsewhere = event._replace(position=event.position._replace(partition=4))
    result = await chat.apply(elsewhere)
    assert isinstance(result, Poison)
    assert "use murmur2" in str(result)
    late = event._replace(position=event.position._replace(offset=1))
    result = await chat.apply(late)
    assert isinstance(result, Poison)
    assert str(result).startswith("offset: 1 is not after")
    await chat.state()


@pytest.mark.rule("W7")
@pytest.mark.parametrize("number", [1, 40, 70, 84, 88])
@pytest.mark.parametrize("text", ["other-text", None])
async def test_a_changed_message_is_summarised_anew_with_its_chunk_alone(
    chat: Chat, number: int, text: str | None
) -> None:
    await chat.record(*range(90))
    before, calls = await chat.state(), chat.quoting.calls
    message = {"id": f"m{number}.1"} | ({"text": text} if text else {})
    work = await chat.take({"type": "message.edited" if text else "message.deleted", "message": message})
    chat.turns[number][2][1] = (f"m{number}.1", text)
    state = await chat.state()
    seq = 2 * number + 1
    changed = {id for id, leaf in before.leaves.items() if leaf.span.first_seq <= seq <= leaf.span.last_seq}
    assert set(before.leaves) - set(state.leaves) == changed
    # the same messages are a chunk again, at the same place; later tiers come back as they were
    assert [(c.span, c.generation) for c in announced(work)[0]] == [
        (before.leaves[id].span, 1) for id in changed
    ]
    await chat.settle(work)
    state = await chat.state()
    assert tiers(state) == tiers(before)
    touched = (
        len(changed) and next(s for s in before.summaries if s.span.first_seq <= seq <= s.span.last_seq).tier
    )
    merges = {0: 0, Tier.recent: 0, Tier.merged: 1, Tier.long_term: 2 if seq >= 64 else 3}
    assert chat.quoting.calls - calls <= len(changed) + merges[touched]


@pytest.mark.rule("W7")
async def test_every_event_that_comes_again_changes_nothing_and_publishes_the_same(
    chat: Chat, redis: Redis
) -> None:
    await chat.record(*range(30), usage={"prompt_tokens": 5, "completion_tokens": 7})
    again = recorded("t29", [("m29.0", "asks-00029"), ("new", "new-answer")], "x1", model=MODEL)
    events = [
        again | {"type": "turn.regenerated", "usage": {"prompt_tokens": 1, "completion_tokens": 1}},
        {"type": "message.edited", "message": {"id": "m3.1", "text": "other-text"}},
        {"type": "message.deleted", "message": {"id": "m25.1"}},
        rewound(20),
        {"type": "chat.deleted"},
    ]
    for body in events:
        event = chat.event(body)
        first = await chat.apply(event)
        assert isinstance(first, Work)
        state = await whole(redis, "c1")
        # the process died before it published
        second = await chat.apply(event)
        assert isinstance(second, Work)
        assert second.repeated
        assert await whole(redis, "c1") == state
        assert sorted(second.publish, key=repr) == sorted(first.publish, key=repr)
        if second.confirmed is not None:
            await second.confirmed()


# memories


@pytest.mark.rule("M9", "O2", "O3", "O4")
async def test_what_a_reply_saved_is_commanded_and_taken_back_with_it(chat: Chat, redis: Redis) -> None:
    memory = {"memory": {"ops": [{"op": "save", "text": "Theo sails"}]}}
    await chat.record(0)
    saved = await chat.take(chat.turn(1, **memory))
    [command] = [MemoryOps.model_validate_json(value) for value in of(saved.publish, Topics.MEMORY_COMMANDS)]
    assert (command.user_id, command.character, command.by) == ("u1", "mira", "character")
    assert (command.source.chat, command.source.turn) == ("c1", "t1")
    assert command.ops == ({"op": "save", "text": "Theo sails"},)
    nothing = [
        chat.turn(2, **memory) | {"user": None},
        chat.turn(3, **memory) | {"chat": {"id": "c1", "kind": "bounty"}},
        chat.turn(4, **memory) | {"model": {"name": "plain", "tools": False}},
    ]
    for body in nothing:
        assert of((await chat.take(body)).publish, Topics.MEMORY_COMMANDS) == []
    edited = await chat.take({"type": "message.edited", "message": {"id": "m1.0", "text": "no"}})
    [back] = [
        MemoryRollback.model_validate_json(value) for value in of(edited.publish, Topics.MEMORY_COMMANDS)
    ]
    assert (back.turns, back.messages, back.user_id) == (("t1",), ("m1.0",), "u1")
    rewind = await chat.take(rewound(0))
    [back] = [
        MemoryRollback.model_validate_json(value) for value in of(rewind.publish, Topics.MEMORY_COMMANDS)
    ]
    assert (back.turns, back.messages, back.chat_id, back.generation) == (("t1",), None, "c1", 2)
    pending = await redis.hgetall(K.memory_rollbacks)
    assert MemoryRollback.model_validate_json(pending[back.id.encode()]) == back
    assert await redis.hlen(K.memory_users) == 0


@pytest.mark.rule("M9")
async def test_a_regenerated_reply_takes_back_before_it_saves(chat: Chat) -> None:
    def saying(text: str) -> dict[str, Any]:
        return {"memory": {"ops": [{"op": "save", "text": text}]}}

    first = chat.event(chat.turn(0, **saying("old")))
    again = chat.event(
        recorded("t0", [("m0.0", "asks-00000"), ("n", "new")], "x", **saying("new"))
        | {"type": "turn.regenerated"}
    )
    results = await chat.window.apply([first, again])
    commands = [
        json.loads(v) for r in results if isinstance(r, Work) for v in of(r.publish, Topics.MEMORY_COMMANDS)
    ]
    kinds = [c["type"] + "/" + (c["ops"][0]["text"] if "ops" in c else "") for c in commands]
    # the first may be published twice; the order in which they take effect is the same
    assert list(dict.fromkeys(kinds)) == ["memory.ops/old", "memory.rollback/", "memory.ops/new"]
    assert kinds[-2:] == ["memory.rollback/", "memory.ops/new"]


@pytest.mark.rule("M9")
async def test_many_turns_are_taken_back_from_memories_in_slices_newest_first(
    chat: Chat, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollbacks, "ROLLBACK_TURNS", 4)
    memory = {"memory": {"ops": [{"op": "save", "text": "Theo sails"}]}}
    await chat.record(*range(12), **memory)
    rewind = await chat.take(rewound(1))
    back = [MemoryRollback.model_validate_json(v) for v in of(rewind.publish, Topics.MEMORY_COMMANDS)]
    assert [command.turns for command in back] == [
        ("t10", "t11"),
        ("t6", "t7", "t8", "t9"),
        ("t2", "t3", "t4", "t5"),
    ]
    assert set(await redis.hkeys(K.memory_rollbacks)) == {command.id.encode() for command in back}
    # where all of it goes, no turn is named
    rewind = await chat.take(rewound(None))
    [whole] = [MemoryRollback.model_validate_json(v) for v in of(rewind.publish, Topics.MEMORY_COMMANDS)]
    assert (whole.turns, whole.messages) == (None, None)


@pytest.mark.rule("M9")
def test_a_slice_of_the_longest_ids_fits_into_a_record() -> None:
    longest = [f"{number:04d}".ljust(limits.ID_CHARACTERS, "\U0001d56b") for number in range(5_000)]
    plan = Plan(memory={"u" * limits.ID_CHARACTERS: longest})
    event = delivered({"id": "e", **rewound(1)}, 1)
    commands = rollbacks.rollbacks(event, plan, None)
    assert [turn for command in reversed(commands) for turn in command.turns or ()] == longest
    assert len({command.id for command in commands}) == 5
    sizes = [len(command.model_dump_json(exclude_none=True).encode()) for command in commands]
    assert max(sizes) < limits.EVENT_BYTES


# forks


@pytest.mark.rule("W8", "M2")
async def test_a_fork_is_as_the_chat_was_and_both_go_on(chat: Chat, redis: Redis) -> None:
    await chat.record(*range(90))
    calls = chat.quoting.calls
    work = await chat.take(
        {"type": "chat.forked", "source": {"chat": "c1", "turn": "t79"}, "user": {"id": "u2"}}, "f1"
    )
    assert of(work.publish, Topics.MEMORY_COMMANDS) == []
    assert announced(work) == ([], [])
    fork = await chat.state("f1")
    check(fork, chat.turns[:80])
    assert (fork.fields["u"], json.loads(fork.fields["cj"])) == ("u2", {"id": "f1", "characters": ["mira"]})
    source = await chat.state()
    assert {s.provenance.chat_id for s in fork.summaries} == {"c1"}
    assert {s.chat_id for s in (*fork.summaries, *fork.archived.values())} == {"f1"}
    assert set(fork.leaves) < set(source.leaves)
    assert chat.quoting.calls == calls
    await chat.record(300, 301, chat="f1")
    await chat.record(90)
    await chat.take(rewound(10))
    del chat.turns[11:]
    await chat.state()
    after = await chat.state("f1")
    assert [turn.id for turn in after.turns[-3:]] == ["t79", "t300", "t301"]


# deletion


@pytest.mark.rule("W7", "C1")
async def test_a_deleted_chat_leaves_a_mark_tombstones_and_what_is_to_be_booked(
    chat: Chat, redis: Redis
) -> None:
    await chat.record(*range(30), memory={"ops": [{"op": "save", "text": "x"}]})
    late = await chat.take(chat.turn(30))
    chunks = (await whole(redis, "c1")).chunks
    work = await chat.summaries.summarise(chunks[0]) if chunks else late
    event = chat.event({"type": "chat.deleted", "forget_memories": True})
    result = await chat.apply(event)
    assert isinstance(result, Work)
    tombstones = {record.topic for record in result.publish if record.value is None}
    assert {Topics.TURNS, Topics.CHUNKS, Topics.SUMMARIES} <= tombstones
    assert all(record.key == b"c1" for record in result.publish if record.value is None)
    [back] = [
        MemoryRollback.model_validate_json(value) for value in of(result.publish, Topics.MEMORY_COMMANDS)
    ]
    assert (back.turns, back.messages) == (None, None)
    if chunks:
        assert set(of(work.publish, Topics.USAGE)) <= set(of(result.publish, Topics.USAGE))
    assert result.confirmed is not None
    await result.confirmed()
    assert await redis.keys("{c:c1}:*") == [K.window.encode()]
    for body in (chat.turn(50), rewound(1)):
        refused = await chat.apply(chat.event(body))
        assert isinstance(refused, Poison)
        assert (str(refused), refused.keep) == ("chat.id: this chat was deleted", False)
    fork = await chat.apply(chat.event({"type": "chat.forked", "source": {"chat": "c1", "turn": "t3"}}, "f1"))
    assert isinstance(fork, Poison)
    assert (await chat.window.tombstone("c1")).publish == ()
    with pytest.raises(Poison):
        await chat.window.tombstone("c9")


async def test_a_chat_that_nobody_knows_can_be_deleted_before_its_first_turn(
    chat: Chat, redis: Redis
) -> None:
    await chat.take({"type": "chat.deleted"})
    assert isinstance(await chat.apply(chat.event(chat.turn(1))), Poison)
    assert await redis.keys("{c:c1}:*") == [K.window.encode()]
