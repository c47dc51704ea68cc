"""Saved memories in contexts, from the turn event to the answer, and while something is taken back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from itertools import combinations_with_replacement, pairwise
from typing import Any

import pytest
from redis.asyncio import Redis

from schemas.context import ContextView, MemoryOff, MemoryPart, MessagePart, Reason
from schemas.delivery import Position, Topics
from schemas.memories import MEMORY_COMMAND, MemoryCommand, MemoryRollback
from schemas.memory_view import MemoryView, SavedView
from schemas.turns import TURN_EVENT
from services.context import saved
from services.context.choices import Choice, Choices
from services.context.memories import Beyond
from services.gateway import access
from services.memories import store as memory_store
from services.memories.service import Delivered as MemoryDelivered
from services.memories.service import Memories
from services.state import keys, scripts, transaction
from services.state.keys import ChatKeys
from services.window.incoming import Delivered
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from tests.gateway import NOW, Recorder, app_on, client, turn, user_token, words

MIRA = "character:mira"
URL = "/v1/chats/c1/context"
FIVE = ("mira", "tom", "ada", "orre", "ida")


class Agents:
    """The agents of windows and of memories. A command on memories waits until `settle` brings it."""

    def __init__(self, redis: Redis, now: datetime = NOW) -> None:
        self.redis = redis
        self._window = Window(redis, words, ChunkSize())
        self._memories = Memories(redis, words, lambda: now)
        self._now = now
        self._offset = 0
        self._commands = 0
        self.waiting: list[MemoryCommand] = []

    async def send(self, *events: dict[str, Any]) -> None:
        """Events of chats, to the window agent."""
        for event in events:
            self._offset += 1
            parsed = TURN_EVENT.validate_python({"at": self._now, **event})
            [work] = await self._window.apply([Delivered(parsed, Position("log", 0, self._offset), 0)])
            assert isinstance(work, Work), work
            self.waiting += [
                MEMORY_COMMAND.validate_json(record.value or b"")
                for record in work.publish
                if record.topic == Topics.MEMORY_COMMANDS
            ]
            if work.confirmed is not None:
                await work.confirmed()

    async def apply(self, count: int | None = None) -> list[Work]:
        """Waiting commands, but for what follows once their results are confirmed."""
        delivered = []
        for command in self.waiting[:count]:
            self._commands += 1
            delivered.append(MemoryDelivered(command, Position("log", 0, self._commands), 0))
        self.waiting = [] if count is None else self.waiting[count:]
        works = await self._memories.apply(delivered)
        assert all(isinstance(work, Work) for work in works), works
        return [work for work in works if isinstance(work, Work)]

    async def settle(self) -> None:
        """The waiting commands, to the end."""
        await confirm(await self.apply())

    async def command(self, type: str = "memory.ops", *, user: str = "u1", **fields: Any) -> None:
        """A command from elsewhere, to the end."""
        name = f"k{self._commands}"
        told = {"type": type, "id": name, "at": self._now, "user_id": user, **fields}
        self.waiting.append(MEMORY_COMMAND.validate_python(told))
        await self.settle()

    async def save(self, *texts: str, scope: str = MIRA, pinned: bool = False, user: str = "u1") -> None:
        """Memories that the user adds."""
        for start in range(0, len(texts), 50):
            ops = [
                {"op": "save", "text": text, "scope": scope, "pinned": pinned}
                for text in texts[start : start + 50]
            ]
            await self.command(by="user", user=user, ops=ops)


async def confirm(works: Sequence[Work]) -> None:
    """What follows once the broker has confirmed."""
    for work in works:
        if work.confirmed is not None:
            await work.confirmed()


def said(number: int, *ops: dict[str, Any], chat: Any = None, **more: Any) -> dict[str, Any]:
    """A turn with Mira, and what she did to memories in it."""
    told = {"characters": ["mira"], **(chat or {})}
    event = turn(number, **more)
    return {**event, "chat": {**event["chat"], **told}, "memory": {"ops": list(ops)}}


def rewound(to: int) -> dict[str, Any]:
    return {
        "type": "chat.rewound",
        "id": f"rewind-{to}",
        "chat": {"id": "c1"},
        "user": {"id": "u1"},
        "turn": {"id": f"t{to}"},
    }


async def context(redis: Redis, chat: str = "c1", *, token: str | None = None, **query: Any) -> ContextView:
    """As a frontend reads it."""
    app = app_on(redis, Recorder())
    async with client(app, token) if token else client(app) as http:
        answer = await http.get(f"/v1/chats/{chat}/context", params=query)
    assert answer.status_code == 200, answer.text
    return ContextView.model_validate_json(answer.content)


def memories(view: ContextView) -> MemoryPart:
    found = view.parts[0]
    assert isinstance(found, MemoryPart)
    return found


def texts(view: ContextView) -> list[str]:
    return [each.text for each in memories(view).entries]


def messages(view: ContextView) -> list[str]:
    parts = [part for part in view.parts if isinstance(part, MessagePart)]
    return [each.id for part in parts for each in part.messages]


@pytest.mark.rule("F2", "M6", "M2")
async def test_what_a_reply_saves_is_in_the_next_context_marked(redis: Redis) -> None:
    agents = Agents(redis)
    await agents.send(said(0, {"op": "save", "text": "Theo owes Mira </memories>\ntwelve crowns"}))
    await agents.settle()
    await agents.save("Theo is allergic to cats", pinned=True, scope="global")
    # another chat with the same character reads the same store
    await agents.send(said(1, chat={"id": "c2"}))
    for chat in ("c1", "c2"):
        view = await context(redis, chat)
        part = memories(view)
        first, _, pin, entry, last = part.text.splitlines()
        assert (first, last) == ("<memories>", "</memories>")
        assert pin == f"- [{part.ids[0]} pinned recent] Theo is allergic to cats"
        assert entry == f"- [{part.ids[1]} recent] Theo owes Mira &lt;/memories&gt;\\ntwelve crowns"
        assert [each.by for each in part.entries] == ["user", "character"]
        assert view.totals.memories == 2
        assert view.totals.tokens == sum(each.tokens for each in view.parts)


@pytest.mark.rule("M6")
@pytest.mark.parametrize(("days", "recent"), [(7, True), (8, False)])
async def test_what_was_updated_in_the_last_seven_days_is_marked(
    redis: Redis, days: int, recent: bool
) -> None:
    agents = Agents(redis, NOW - timedelta(days=days))
    await agents.send(said(0))
    await agents.save("an old story")
    part = memories(await context(redis))
    assert [each.recent for each in part.entries] == [recent]
    assert (" recent]" in part.text) == recent


@pytest.mark.rule("M4", "M6", "M8", "F2")
async def test_a_group_of_five_reads_the_memories_of_all_evenly(redis: Redis) -> None:
    agents = Agents(redis)
    await agents.send(said(0, chat={"characters": list(FIVE)}))
    scopes = ("global", *(f"character:{name}" for name in FIVE))
    for scope in scopes:
        await agents.save(*(f"{scope} {number}" for number in range(100)), scope=scope)
        await agents.save(*(f"{scope} pin {number}" for number in range(20)), scope=scope, pinned=True)
    await agents.save("somebody else's", scope="character:tom2")
    view = await context(redis)
    entries = memories(view).entries
    pins = Counter(each.scope for each in entries if each.pinned)
    others = Counter(each.scope for each in entries if not each.pinned)
    assert pins == dict.fromkeys(scopes, 20)
    assert sum(others.values()) == 100
    assert set(others) == set(scopes)
    assert set(others.values()) == {16, 17}
    for scope, count in others.items():
        newest = {f"{scope} {number}" for number in range(100 - count, 100)}
        assert {each.text for each in entries if each.scope == scope and not each.pinned} == newest
    (left,) = view.left_out
    assert (left.reason, len(left.ids), left.limit) == (Reason.over_limit, 500, 100)
    # one chat with one of them: its own and the global ones
    await agents.send(said(1, chat={"id": "c2", "characters": ["tom"]}))
    one = memories(await context(redis, "c2")).entries
    assert {each.scope for each in one} == {"global", "character:tom"}


class TestChosenBefore:
    """Where there are more memories than go in, a gateway reads those that were chosen the last time."""

    @pytest.mark.rule("M6", "M8", "O1")
    async def test_every_change_is_seen(self, redis: Redis) -> None:
        agents = Agents(redis)
        await agents.send(said(0, chat={"characters": ["mira", "tom"]}))
        for scope in ("global", MIRA, "character:tom"):
            await agents.save(*(f"{scope} {number}" for number in range(60)), scope=scope)
        gateway = app_on(redis, Recorder())

        async def both() -> ContextView:
            views = []
            for app in (gateway, gateway, app_on(redis, Recorder())):
                async with client(app) as http:
                    views.append(ContextView.model_validate_json((await http.get(URL)).content))
            assert views[0] == views[1] == views[2]
            return views[0]

        view = await both()
        oldest, newest = view.left_out[0].ids[-1], memories(view).ids[0]
        changes: list[dict[str, Any]] = [
            {"op": "save", "text": "one more", "scope": "character:tom"},
            {"op": "pin", "id": oldest},
            {"op": "update", "id": newest, "text": "something else"},
            {"op": "move", "id": newest, "scope": "global"},
            {"op": "delete", "id": newest},
            {"op": "unpin", "id": oldest},
        ]
        seen = [view]
        for change in changes:
            await agents.command(by="user", ops=[change])
            seen.append(await both())
        assert all(before != after for before, after in pairwise(seen))
        await agents.command("memory.settings", character="mira", learn_from_chat=False)
        assert {each.scope for each in memories(await both()).entries} == {"global", "character:tom"}
        await agents.command("memory.clear", scope="character:tom")
        assert {each.scope for each in memories(await both()).entries} == {"global"}

    async def test_a_store_that_was_set_back_is_read_anew(self, redis: Redis) -> None:
        agents = Agents(redis)
        await agents.send(said(0))
        await agents.save(*(f"fact {number}" for number in range(100)))
        await agents.save("another one", scope="global")
        async with client(app_on(redis, Recorder())) as http:
            await http.get(URL)
            await redis.delete(keys.scope("u1", MIRA))
            view = ContextView.model_validate_json((await http.get(URL)).content)
        assert texts(view) == ["another one"]

    def test_as_many_are_remembered_as_are_used(self) -> None:
        choices, choice = Choices(2), Choice(1, None, [], [], [], [], Beyond())
        for user in ("a", "b"):
            choices.put(user, (), choice)
        assert choices.find("a", ()) is not None
        choices.put("c", (), choice)
        assert [choices.find(user, ()) is not None for user in "abc"] == [True, False, True]


class TestOff:
    @pytest.mark.rule("O1")
    async def test_learning_off_stops_saving_and_reading(self, redis: Redis) -> None:
        agents = Agents(redis)
        await agents.save("about mira")
        await agents.save("about everybody", scope="global")
        await agents.command("memory.settings", character="mira", learn_from_chat=False)
        await agents.send(said(0, {"op": "save", "text": "Theo likes rope"}))
        await agents.settle()
        part = memories(await context(redis))
        assert (part.off, part.learning_off, part.text) == (MemoryOff.learning_off, ("mira",), "")
        await agents.command("memory.settings", character="mira", learn_from_chat=True)
        part = memories(await context(redis))
        assert (part.off, part.learning_off) == (None, ())
        assert sorted(each.text for each in part.entries) == ["about everybody", "about mira"]

    @pytest.mark.rule("O1", "M4")
    async def test_in_a_group_only_the_memories_of_that_character_are_absent(self, redis: Redis) -> None:
        agents = Agents(redis)
        await agents.send(said(0, chat={"characters": ["mira", "tom"]}))
        await agents.save("about mira")
        await agents.save("about tom", scope="character:tom")
        await agents.save("about everybody", scope="global")
        await agents.command("memory.settings", character="mira", learn_from_chat=False)
        view = await context(redis)
        assert (memories(view).off, memories(view).learning_off) == (None, ("mira",))
        assert sorted(texts(view)) == ["about everybody", "about tom"]

    @pytest.mark.rule("O2")
    async def test_a_model_without_tools_saves_nothing_and_reads_all(self, redis: Redis) -> None:
        agents = Agents(redis)
        await agents.save("Theo owes twelve crowns")
        op = {"op": "save", "text": "Theo likes rope"}
        await agents.send(said(0, op, model={"name": "small", "tools": False}))
        await agents.settle()
        view = await context(redis)
        assert memories(view).off is None
        assert texts(view) == ["Theo owes twelve crowns"]

    @pytest.mark.rule("O3")
    async def test_a_bounty_chat_saves_and_reads_nothing(self, redis: Redis) -> None:
        agents = Agents(redis)
        await agents.save("Theo owes twelve crowns")
        await agents.send(said(0, {"op": "save", "text": "Theo likes rope"}, chat={"kind": "bounty"}))
        await agents.settle()
        part = memories(await context(redis))
        assert (part.off, part.text, part.entries) == (MemoryOff.bounty, "", ())
        await agents.send(said(1, chat={"id": "c2"}))
        assert texts(await context(redis, "c2")) == ["Theo owes twelve crowns"]

    @pytest.mark.rule("O4")
    async def test_signed_out_nothing_is_saved_and_read(self, redis: Redis) -> None:
        agents = Agents(redis)
        await agents.send(said(0, {"op": "save", "text": "Theo likes rope"}, user=None))
        await agents.settle()
        part = memories(await context(redis))
        assert (part.off, part.text, part.entries) == (MemoryOff.signed_out, "", ())
        assert [key async for key in redis.scan_iter("{u:*")] == []


@pytest.mark.rule("F2", "M2")
async def test_a_service_may_name_whose_memories_a_user_may_not(redis: Redis) -> None:
    agents = Agents(redis)
    await agents.send(said(0))
    await agents.save("of the owner")
    await agents.save("of somebody else", user="u2")
    assert texts(await context(redis)) == ["of the owner"]
    assert texts(await context(redis, user="u2")) == ["of somebody else"]
    assert texts(await context(redis, token=user_token("u1"), user="u1")) == ["of the owner"]
    async with client(app_on(redis, Recorder()), user_token("u1")) as http:
        answer = await http.get("/v1/chats/c1/context", params={"user": "u2"})
    assert (answer.status_code, answer.json()["type"]) == (403, "urn:afterturn:problem:forbidden")


@pytest.mark.rule("F3", "O1", "O3", "O4")
async def test_a_panel_sees_how_many_there_are_and_what_is_off(redis: Redis) -> None:
    agents = Agents(redis)
    await agents.send(said(0, chat={"characters": ["mira", "tom"]}))
    await agents.send(
        said(1, chat={"id": "bounty", "kind": "bounty"}), said(2, user=None, chat={"id": "nobody"})
    )
    await agents.save("one", "two", scope="global")
    await agents.save("three", pinned=True)
    async with client(app_on(redis, Recorder())) as http:

        async def read(chat: str = "c1") -> SavedView:
            answer = await http.get(f"/v1/chats/{chat}/memory")
            return MemoryView.model_validate_json(answer.content).memories

        tag = (await http.get("/v1/chats/c1/memory")).headers["etag"]
        assert [(each.scope, each.memories) for each in (await read()).scopes] == [
            ("global", 2),
            (MIRA, 1),
            ("character:tom", 0),
        ]
        await agents.command("memory.settings", character="mira", learn_from_chat=False)
        answer = await http.get("/v1/chats/c1/memory", headers={"If-None-Match": tag})
        assert answer.status_code == 200
        found = await read()
        assert (found.off, found.learning_off) == (None, ("mira",))
        assert [each.scope for each in found.scopes] == ["global", "character:tom"]
        await agents.command("memory.settings", character="tom", learn_from_chat=False)
        assert (await read()).off is MemoryOff.learning_off
        assert (await read("bounty")).off is MemoryOff.bounty
        assert (await read("nobody")).off is MemoryOff.signed_out


@pytest.mark.rule("M5")
async def test_memories_of_a_deleted_character_are_read_as_global_ones(redis: Redis) -> None:
    agents = Agents(redis)
    await agents.send(said(0))
    await agents.save("about mira")
    await agents.command("character.deleted", character="mira")
    (entry,) = memories(await context(redis)).entries
    assert (entry.scope, entry.text) == ("global", "about mira")


class Between:
    """Runs steps right before chosen round trips of a reader; steps themselves count for nothing."""

    def __init__(self, steps: Sequence[Callable[[], Awaitable[Any]]], places: Sequence[int]) -> None:
        self._steps = list(zip(places, steps, strict=True))
        self._trips = 0
        self._inside = False
        self._exchange = scripts.exchange

    async def exchange(self, redis: Redis, packed: Sequence[bytes]) -> list[Any]:
        """In the place of services.state.scripts.exchange."""
        if not self._inside:
            await self._run(self._trips)
            self._trips += 1
        return await self._exchange(redis, packed)

    async def _run(self, trip: int) -> None:
        self._inside = True
        while self._steps and self._steps[0][0] <= trip:
            await self._steps.pop(0)[1]()
        self._inside = False

    @property
    def left(self) -> int:
        """Steps that the reader was too fast for."""
        return len(self._steps)


OLD, NEW, BOTH = "Theo owes ten crowns", "Theo owes twelve crowns", ["m0", "m1", "m2", "m3"]


async def taking_back(redis: Redis) -> list[Callable[[], Awaitable[Any]]]:
    """A chat whose second turn has changed a memory and saved another one, and the steps of rewinding it."""
    agents = Agents(redis)
    await agents.send(said(0, {"op": "save", "text": OLD, "id": "debt"}))
    await agents.send(
        said(
            1,
            {"op": "update", "id": "debt", "text": NEW},
            {"op": "save", "text": "Theo likes rope", "id": "rope"},
        )
    )
    await agents.settle()
    works: list[Work] = []

    async def rewind() -> None:
        await agents.send(rewound(0))
        assert isinstance(agents.waiting[0], MemoryRollback)

    async def apply() -> None:
        works.extend(await agents.apply())

    async def forget() -> None:
        await confirm(works)
        assert await redis.exists(ChatKeys.of("c1").memory_rollbacks) == 0

    return [rewind, apply, forget]


@pytest.mark.rule("M9", "W7", "F2")
@pytest.mark.parametrize("places", [*combinations_with_replacement(range(8), 3)])
async def test_a_reader_sees_all_of_a_take_back_or_nothing(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, places: tuple[int, ...]
) -> None:
    between = Between(await taking_back(redis), places)
    monkeypatch.setattr(scripts, "exchange", between.exchange)
    monkeypatch.setattr(transaction, "exchange", between.exchange)
    view = await context(redis)
    seen = (messages(view), sorted(texts(view)))
    assert seen in ((BOTH, sorted((NEW, "Theo likes rope"))), (["m0", "m1"], [OLD]))
    if places[0] == 0:
        assert seen == (["m0", "m1"], [OLD])


@pytest.mark.rule("M9", "W7", "F2")
@pytest.mark.parametrize("places", [*combinations_with_replacement(range(6), 3)])
async def test_a_reader_during_a_regeneration_keeps_what_the_new_reply_has_saved(
    redis: Redis, monkeypatch: pytest.MonkeyPatch, places: tuple[int, ...]
) -> None:
    agents = Agents(redis)
    await agents.send(said(0, {"op": "save", "text": OLD}))
    await agents.settle()
    event = said(0, {"op": "save", "text": NEW}, id="again")
    event["messages"] = [{**each, "id": f"new-{each['id']}"} for each in event["messages"]]

    async def regenerate() -> None:
        await agents.send({**event, "type": "turn.regenerated"})
        assert [command.type for command in agents.waiting] == ["memory.rollback", "memory.ops"]

    async def apply() -> None:
        await agents.apply(1)

    between = Between([regenerate, apply, apply], places)
    monkeypatch.setattr(scripts, "exchange", between.exchange)
    monkeypatch.setattr(transaction, "exchange", between.exchange)
    view = await context(redis)
    said_now = ["new-m0", "new-m1"]
    assert (messages(view), texts(view)) in ((["m0", "m1"], [OLD]), (said_now, []), (said_now, [NEW]))
    if places in ((0, 0, 0), (0, 2, 2)):
        # all has taken effect before the memories are read, in the second case a second time
        assert texts(view) == [NEW]


@pytest.mark.rule("M9")
async def test_what_is_not_taken_back_yet_reads_as_it_will(redis: Redis) -> None:
    rewind, apply, forget = await taking_back(redis)
    await rewind()
    ahead = await context(redis)
    await apply()
    assert await context(redis) == ahead
    await forget()
    assert await context(redis) == ahead
    assert texts(ahead) == [OLD]


@pytest.mark.rule("M9", "M8")
async def test_a_rollback_of_another_user_is_not_for_these_memories(redis: Redis) -> None:
    rewind, apply, _ = await taking_back(redis)
    await Agents(redis).save("of somebody else", user="u2")
    await rewind()
    assert texts(await context(redis, user="u2")) == ["of somebody else"]
    await apply()
    assert texts(await context(redis, user="u2")) == ["of somebody else"]


async def test_a_chat_that_never_stands_still_is_an_error_and_no_half(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await Agents(redis).send(said(0))
    tries = 0

    async def read(*_: Any) -> None:
        nonlocal tries
        tries += 1

    monkeypatch.setattr(saved, "read", read)
    async with client(app_on(redis, Recorder())) as http:
        answer = await http.get("/v1/chats/c1/context")
    assert (answer.status_code, answer.headers["retry-after"], tries) == (503, "2", access.READS)


@pytest.mark.rule("W7", "F2")
async def test_a_deleted_message_is_in_no_view(redis: Redis) -> None:
    agents = Agents(redis)
    await agents.send(said(0), said(1))
    event = {"type": "message.deleted", "id": "gone", "chat": {"id": "c1"}, "user": {"id": "u1"}}
    await agents.send({**event, "message": {"id": "m1"}})
    assert len(await redis.hgetall(ChatKeys.of("c1").messages)) == 4
    view = await context(redis)
    assert (messages(view), view.totals.messages, view.totals.tokens) == (["m0", "m2", "m3"], 3, 15)
    async with client(app_on(redis, Recorder())) as http:
        memory = MemoryView.model_validate_json((await http.get("/v1/chats/c1/memory")).content)
    assert (memory.live.ids, memory.live.count, memory.live.tokens) == (("m0", "m2", "m3"), 3, 15)


@pytest.mark.rule("W7")
async def test_a_deleted_chat_is_an_unknown_one(redis: Redis) -> None:
    agents = Agents(redis)
    await agents.send(said(0))
    await agents.send({"type": "chat.deleted", "id": "gone", "chat": {"id": "c1"}, "user": {"id": "u1"}})
    async with client(app_on(redis, Recorder())) as http:
        for route in ("context", "memory"):
            assert (await http.get(f"/v1/chats/c1/{route}")).status_code == 404


async def test_choosing_reads_what_is_stored_as_the_rules_do(redis: Redis) -> None:
    agents = Agents(redis)
    await agents.save("one", "two")
    await agents.save("three", pinned=True)
    [answer] = await transaction.at_once(redis, [("HGETALL", keys.scope("u1", MIRA))])
    held = memory_store.parse_scope(MIRA, answer)
    found = saved.candidates(MIRA, answer)
    assert {each.id: (each.order, each.scope, each.pinned, each.tokens, each.body) for each in found} == {
        id: (each.order, each.scope, each.pinned, each.tokens, each.body) for id, each in held.items()
    }
    flat = [part for pair in answer.items() for part in pair]
    assert saved.candidates(MIRA, flat) == found
