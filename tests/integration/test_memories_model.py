"""Whatever is saved, changed, cleared and taken back, delivered again and interrupted: memories are what a model says.

The model keeps of every entry the list of what has been written into it, with full texts. What an entry says is the last
of its writes that stands; taking a turn back strikes out its writes. Nothing else is needed to say what M9 means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis

from schemas import limits
from schemas.memories import MemoryChanged, OpResult, Status
from services.memories.service import Delivered
from tests.integration.memories_state import State, agrees, confirm, memories, read, told, works
from tests.memories import command, delivered

UNPINNED, PINNED = 4, 2
"""Instead of 100 and 20: what matters happens at the edge."""

CHARACTERS = ("mira", "tom")
SCOPES = ("global", "character:mira", "character:tom")
Turn = tuple[str, str]
"""Chat and turn."""


@dataclass
class Write:
    """One write into an entry, None: it ended. `order` is when the text was set; `turn` None: it is nobody's to take back."""

    number: int
    text: str | None
    order: int
    turn: Turn | None
    by: str


@dataclass
class Item:
    """An entry, there or gone."""

    scope: str
    pinned: bool
    made_by: str
    writes: list[Write] = field(default_factory=list)

    @property
    def last(self) -> Write | None:
        """What it says."""
        return self.writes[-1] if self.writes and self.writes[-1].text is not None else None


class Model:
    """What the memories of a user should be. Numbers are those of changes, as the service gives them out."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}
        self.off: set[str] = set()
        self.deleted: set[str] = set()

    def home(self, scope: str) -> str:
        return "global" if scope.removeprefix("character:") in self.deleted else scope

    def there(self, scope: str, pinned: bool | None = None) -> list[str]:
        """Ids in a scope, the least recently updated first."""
        found = [
            (item.last.order, memory_id)
            for memory_id, item in self.items.items()
            if item.last is not None and item.scope == scope and pinned in (None, item.pinned)
        ]
        return [memory_id for _, memory_id in sorted(found)]

    def full(self, scope: str) -> bool:
        return len(self.there(scope, True)) >= PINNED

    def displace(self, scope: str, number: int, turn: Turn | None, stays: str | None = None) -> str | None:
        """Over the limit, the least recently updated goes; `number` is that of the first change this makes."""
        gone = None
        over = len(self.there(scope, False)) - UNPINNED
        for memory_id in [each for each in self.there(scope, False) if each != stays][: max(0, over)]:
            self.items[memory_id].writes.append(Write(number, None, 0, turn, ""))
            gone, number = memory_id, number + 1
        return gone

    def may(self, memory_id: str, character: str) -> bool:
        item = self.items.get(memory_id)
        return (
            item is not None
            and item.last is not None
            and item.scope in ("global", f"character:{character}")
            and not item.pinned
            and "user" not in (item.made_by, item.last.by)
            and item.last.by in (character, "deep_memory")
        )

    def take_back(self, turns: set[Turn], number: int) -> int:
        """Returns how many entries were affected."""
        scopes, affected = [], 0
        for memory_id in sorted(self.items):
            item = self.items[memory_id]
            left = [write for write in item.writes if write.turn not in turns]
            if len(left) == len(item.writes):
                continue
            if item.last is not None and item.pinned:
                for write in item.writes:
                    # settled: no later take-back reaches it
                    write.turn = None if write.turn in turns else write.turn
                continue
            gone, said = item.last is None, any(write.text for write in item.writes)
            item.writes = left
            affected += said
            if gone and item.last is not None:
                item.scope = self.home(item.scope)
            if item.last is not None:
                scopes.append(item.scope)
        number += affected
        for scope in sorted(set(scopes)):
            before = len(self.there(scope, False))
            self.displace(scope, number, None)
            number += before - len(self.there(scope, False))
        return affected


class MemoriesMachine(RuleBasedStateMachine):
    """The memories of u1. `redis_url` and `runner` are set by the test below."""

    redis_url: str
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        self.redis = Redis.from_url(self.redis_url)
        self.run(self.redis.flushdb())
        self.service = memories(self.redis)
        self.model = Model()
        self.count = 0
        self.sent: list[Delivered] = []
        self.results: dict[str, MemoryChanged] = {}
        self.state: State = self.run(read(self.redis))

    def run(self, work: Any) -> Any:
        async def awaited() -> Any:
            return await work

        return self.runner.run(awaited())

    def teardown(self) -> None:
        self.run(self.redis.aclose())

    def text(self) -> str:
        self.count += 1
        return f"text {self.count}"

    # delivering

    def send(self, data: st.DataObject, type: str = "memory.ops", **fields: Any) -> MemoryChanged:
        """The next record of the log, with something that goes wrong on the way or not; what became of it."""
        self.count += 1
        event = delivered(self.count, command(self.count, type, **fields))
        mishap = data.draw(
            st.sampled_from(("none", "none", "before publishing", "before the trim", "both at once"))
        )
        before = self.state
        if mishap == "both at once":

            async def both() -> list[Any]:
                other = memories(self.redis)
                return await asyncio.gather(self.service.apply([event]), other.apply([event]))

            first, second = self.run(both())
            done = works([*first, *second])
        else:
            done = works(self.run(self.service.apply([event])))
            if mishap == "before publishing":
                done = works(self.run(self.service.apply([event])))
            elif mishap == "before the trim":
                done += works(self.run(self.service.apply([event])))
        published = {each.command_id: each for work in done for each in told(work.publish)}
        result = published[event.command.id]
        self.run(confirm(done))
        self.sent.append(event)
        self.results[event.command.id] = result
        self.state = self.run(read(self.redis))
        assert self.state.results[event.command.id] == result
        assert result.version == self.state.number("v")
        assert (result.version > before.number("v")) == (
            (self.state.entries, self.state.changes, self.state.settings)
            != (before.entries, before.changes, before.settings)
        )
        return result

    def one(self, data: st.DataObject, op: dict[str, Any], **fields: Any) -> OpResult:
        [result] = self.send(data, ops=[op], **{"by": "user", **fields}).results
        return result

    # drawing

    def some_id(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.model.items)))

    def some_turn(self, data: st.DataObject) -> Turn:
        return data.draw(st.sampled_from(("c1", "c2"))), data.draw(st.sampled_from(("t1", "t2", "t3")))

    def next(self) -> int:
        """Number of the next change."""
        return self.state.number("n") + 1

    # what users do

    @rule(data=st.data(), scope=st.sampled_from(SCOPES), pinned=st.booleans())
    def the_user_saves(self, data: st.DataObject, scope: str, pinned: bool) -> None:
        model, number, text = self.model, self.next(), self.text()
        scope_now = model.home(scope)
        full = pinned and model.full(scope_now)
        result = self.one(data, {"op": "save", "text": text, "scope": scope, "pinned": pinned})
        assert (result.status is Status.refused) == full
        if not full:
            assert result.memory_id is not None
            item = Item(scope_now, pinned, "user", [Write(number, text, number, None, "user")])
            model.items[result.memory_id] = item
            assert result.displaced == model.displace(scope_now, number + 1, None, result.memory_id)

    @precondition(lambda self: self.model.items)
    @rule(data=st.data())
    def the_user_edits(self, data: st.DataObject) -> None:
        memory_id, number, text = self.some_id(data), self.next(), self.text()
        item = self.model.items[memory_id]
        result = self.one(data, {"op": "update", "id": memory_id, "text": text})
        assert (result.status is Status.applied) == (item.last is not None)
        if item.last is not None:
            item.writes.append(Write(number, text, number, None, "user"))

    @precondition(lambda self: self.model.items)
    @rule(data=st.data())
    def the_user_deletes(self, data: st.DataObject) -> None:
        memory_id, number = self.some_id(data), self.next()
        item = self.model.items[memory_id]
        result = self.one(data, {"op": "delete", "id": memory_id})
        assert (result.status is Status.applied) == (item.last is not None)
        if item.last is not None:
            item.writes.append(Write(number, None, 0, None, "user"))

    @precondition(lambda self: self.model.items)
    @rule(data=st.data(), pinned=st.booleans())
    def the_user_pins_or_unpins(self, data: st.DataObject, pinned: bool) -> None:
        memory_id, number, model = self.some_id(data), self.next(), self.model
        item = model.items[memory_id]
        refused = item.last is None or (pinned and not item.pinned and model.full(item.scope))
        result = self.one(data, {"op": "pin" if pinned else "unpin", "id": memory_id})
        assert (result.status is Status.refused) == refused
        if not refused and item.pinned != pinned:
            item.pinned = pinned
            assert result.displaced == model.displace(item.scope, number + 1, None, memory_id)

    @precondition(lambda self: self.model.items)
    @rule(data=st.data(), scope=st.sampled_from(SCOPES))
    def the_user_moves(self, data: st.DataObject, scope: str) -> None:
        memory_id, number, model = self.some_id(data), self.next(), self.model
        item, scope_now = model.items[memory_id], model.home(scope)
        away = item.scope != scope_now
        refused = item.last is None or (away and item.pinned and model.full(scope_now))
        result = self.one(data, {"op": "move", "id": memory_id, "scope": scope})
        assert (result.status is Status.refused) == refused
        if not refused and away:
            item.scope = scope_now
            assert result.displaced == model.displace(scope_now, number + 1, None, memory_id)

    @precondition(lambda self: self.model.items)
    @rule(data=st.data())
    def the_user_restores(self, data: st.DataObject) -> None:
        memory_id, number, model = self.some_id(data), self.next(), self.model
        item = model.items[memory_id]
        if not item.writes:
            return
        at = data.draw(st.integers(0, len(item.writes) - 1))
        old = item.writes[at - 1] if at else None
        scope = item.scope if item.last is not None else model.home(item.scope)
        # what it replaced: the text before it, in the chain of what stands
        refused = old is None or old.text is None or (item.last is None and item.pinned and model.full(scope))
        result = self.one(data, {"op": "restore", "change": item.writes[at].number})
        assert (result.status is Status.refused) == refused
        if refused or old is None:
            return
        if item.last is not None and item.last.text == old.text:
            assert result.status is Status.unchanged
            return
        item.scope = scope
        item.writes.append(Write(number, old.text, number, None, old.by))
        assert result.displaced == model.displace(scope, number + 1, None, memory_id)

    @rule(data=st.data(), scope=st.sampled_from(SCOPES), pinned=st.booleans(), wrong=st.integers(0, 3))
    def the_user_clears(self, data: st.DataObject, scope: str, pinned: bool, wrong: int) -> None:
        pins = len(self.model.there(scope, True))
        expected = pins + (wrong == 3)
        result = self.send(data, "memory.clear", scope=scope, pinned=pinned, expected=expected)
        if not pinned or expected == pins:
            for memory_id in self.model.there(scope, pinned):
                self.model.items[memory_id].writes.clear()
        assert result.kept_pins == len(self.model.there(scope, True))

    @rule(data=st.data(), character=st.sampled_from(CHARACTERS), on=st.booleans())
    def learning_is_switched(self, data: st.DataObject, character: str, on: bool) -> None:
        self.send(data, "memory.settings", character=character, learn_from_chat=on)
        if character not in self.model.deleted:
            (self.model.off.discard if on else self.model.off.add)(character)

    @rule(data=st.data(), character=st.sampled_from(CHARACTERS), really=st.integers(0, 4))
    def a_character_is_deleted(self, data: st.DataObject, character: str, really: int) -> None:
        if really:
            return
        model, number = self.model, self.next()
        room = {
            True: PINNED - len(model.there("global", True)),
            False: UNPINNED - len(model.there("global", False)),
        }
        left = 0
        for memory_id in reversed(model.there(f"character:{character}")):
            item = model.items[memory_id]
            if room[item.pinned] > 0:
                room[item.pinned] -= 1
                item.scope = "global"
            else:
                left += 1
                item.writes.append(Write(number, None, 0, None, "system"))
            number += 1
        model.deleted.add(character)
        model.off.discard(character)
        result = self.send(data, "character.deleted", character=character)
        assert (result.notice is None) == (left == 0)

    # what models do

    @rule(data=st.data(), character=st.sampled_from(CHARACTERS), size=st.integers(1, 3), deep=st.booleans())
    def a_turn_writes(self, data: st.DataObject, character: str, size: int, deep: bool) -> None:
        turn, model, number = self.some_turn(data), self.model, self.next()
        by = "deep_memory" if deep else character
        off = character in model.off
        ops: list[dict[str, Any]] = []
        # ids of entries that the turn itself makes are not known yet: it changes others only
        for _ in range(size):
            kind = data.draw(st.sampled_from(("save", "update", "delete")))
            if kind == "save" or not model.items:
                text = self.text()
                ops.append(
                    {"op": "save", "text": text, "scope": data.draw(st.sampled_from(("global", None)))}
                )
            else:
                ops.append({"op": kind, "id": self.some_id(data), "text": self.text()})
        told = self.send(
            data,
            by="deep_memory" if deep else "character",
            character=character,
            source={"chat": turn[0], "turn": turn[1]},
            ops=[{name: value for name, value in op.items() if value is not None} for op in ops],
        )
        for op, result in zip(ops, told.results, strict=True):
            if op["op"] == "save":
                assert (result.status is Status.refused) == off
                if off:
                    continue
                assert result.memory_id is not None
                scope = model.home(op["scope"] or f"character:{character}")
                write = Write(number, op["text"], number, turn, by)
                model.items[result.memory_id] = Item(scope, False, by, [write])
                number += 1
                assert result.displaced == model.displace(scope, number, turn, result.memory_id)
                number += result.displaced is not None
                continue
            allowed = not off and model.may(op["id"], character)
            assert (result.status is Status.applied) == allowed, (op, result)
            if allowed:
                item = model.items[op["id"]]
                text = op["text"] if op["op"] == "update" else None
                item.writes.append(Write(number, text, number if text else 0, turn, by))
                number += 1

    @rule(data=st.data(), several=st.booleans())
    def turns_are_taken_back(self, data: st.DataObject, several: bool) -> None:
        chat, turn = self.some_turn(data)
        turns = ["t1", "t2", "t3"] if several else [turn]
        affected = self.model.take_back({(chat, each) for each in turns}, self.next())
        result = self.send(data, "memory.rollback", chat_id=chat, generation=1, turns=turns)
        assert len(result.results) == affected

    # what goes wrong

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def an_old_record_comes_again(self, data: st.DataObject) -> None:
        event = data.draw(st.sampled_from(self.sent))
        [work] = works(self.run(memories(self.redis).apply([event])))
        assert (work.repeated, work.publish) == (True, ())

    @precondition(lambda self: self.sent)
    @rule(count=st.integers(1, 20))
    def all_since_the_last_commit_comes_again(self, count: int) -> None:
        for work in works(self.run(memories(self.redis).apply(self.sent[-count:]))):
            assert (work.repeated, work.publish) == (True, ())
        assert self.run(read(self.redis)) == self.state

    # what is always so

    @invariant()
    def memories_are_what_the_model_says(self) -> None:
        state = self.state
        agrees(state)
        said = {
            memory_id: (item.scope, item.pinned, item.last.text, item.last.order, item.last.by)
            for memory_id, item in self.model.items.items()
            if item.last is not None
        }
        assert said == {
            entry.id: (
                entry.scope,
                entry.pinned,
                entry.wording.text,
                entry.wording.order,
                entry.wording.character if entry.wording.by == "character" else str(entry.wording.by.value),
            )
            for entry in state.entries.values()
        }
        # nothing is quoted that was taken back or cleared, and nothing else is missing
        quoted = {
            wording.text
            for change in state.changes
            for wording in (change.before, change.after)
            if wording is not None
        }
        stands = {write.text for item in self.model.items.values() for write in item.writes} - {None}
        assert quoted == stands
        assert {name for name, value in state.settings.items() if value == "0"} == self.model.off
        noted = {
            (chat, turn, number)
            for chat, journal in state.journals.items()
            for turn, numbers in journal.items()
            for number in numbers
        }
        wanted = {
            (*write.turn, write.number)
            for item in self.model.items.values()
            for write in item.writes
            if write.turn is not None
        }
        cleared = {
            change.number for change in state.changes if change.before is None and change.after is None
        }
        assert wanted <= noted
        assert {number for _, _, number in noted - wanted} <= cleared


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.mark.rule("M1", "M2", "M3", "M5", "M8", "M9", "M10", "M11", "O1")
def test_memories_are_what_a_model_with_full_copies_says(
    redis_url: str, runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "MEMORIES_UNPINNED", UNPINNED)
    monkeypatch.setattr(limits, "MEMORIES_PINNED", PINNED)
    MemoriesMachine.redis_url, MemoriesMachine.runner = redis_url, runner
    run_state_machine_as_test(
        MemoriesMachine,
        settings=settings(
            max_examples=25,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
