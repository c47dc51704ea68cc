"""Saved memories over HTTP: what a user sees and changes, and what becomes of a change that takes its time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ConnectionLost

from schemas import limits
from schemas.delivery import Outgoing, Topics
from schemas.memories import Author, MemoryOps, Source
from schemas.saved_memories import HistoryView, MemoriesView, MemoryWritten
from services.memories import store
from services.state.keys import UserKeys
from tests.gateway import NOW, Applying, Recorder, app_on, started, user_token

MEMORIES = "/v1/users/u1/memories"
MIRA = "character:mira"


@pytest.fixture
def agent(redis: Redis) -> Applying:
    return Applying(redis=redis)


@pytest.fixture
async def http(redis: Redis, agent: Applying) -> AsyncIterator[httpx.AsyncClient]:
    async with started(app_on(redis, agent), user_token("u1")) as client:
        yield client


async def add(http: httpx.AsyncClient, text: str, scope: str = "global", **fields: Any) -> MemoryWritten:
    response = await http.post(MEMORIES, json={"text": text, "scope": scope, **fields})
    assert response.status_code == 201, response.text
    return MemoryWritten.model_validate_json(response.content)


def id_of(written: MemoryWritten) -> str:
    assert written.memory is not None
    return written.memory.id


async def listed(http: httpx.AsyncClient, **query: str) -> MemoriesView:
    response = await http.get(MEMORIES, params=query)
    assert response.status_code == 200, response.text
    return MemoriesView.model_validate_json(response.content)


async def history(http: httpx.AsyncClient, **query: Any) -> HistoryView:
    response = await http.get(f"{MEMORIES}/history", params=query)
    assert response.status_code == 200, response.text
    return HistoryView.model_validate_json(response.content)


async def in_a_turn(
    redis: Redis, agent: Applying, *ops: dict[str, Any], number: int = 1, **fields: Any
) -> None:
    """A command of the window agent: what Mira has saved in a turn."""
    command = MemoryOps(
        id=f"turn-{number}",
        at=NOW - timedelta(days=number),
        user_id="u1",
        by=Author.character,
        character="mira",
        characters=("mira",),
        source=Source(chat="c1", turn=f"t{number}"),
        ops=ops,
        **fields,
    )
    await agent.publish([Outgoing(Topics.MEMORY_COMMANDS, b"u1", command.model_dump_json().encode())])


async def fill(redis: Redis, agent: Applying, count: int, *, pinned: bool = False, scope: str = MIRA) -> None:
    """So many memories of the user in a scope."""
    for start in range(0, count, limits.MEMORY_OPS):
        ops = tuple(
            {"op": "save", "text": f"fact {pinned} {n}", "scope": scope, "pinned": pinned}
            for n in range(start, min(count, start + limits.MEMORY_OPS))
        )
        command = MemoryOps(
            id=f"fill-{pinned}-{scope}-{start}", at=NOW, user_id="u1", by=Author.user, ops=ops
        )
        await agent.publish([Outgoing(Topics.MEMORY_COMMANDS, b"u1", command.model_dump_json().encode())])


# --- reading and changing


@pytest.mark.rule("M1", "M6", "M7", "M8")
async def test_pins_come_first_and_what_is_new_is_marked(
    redis: Redis, agent: Applying, http: httpx.AsyncClient
) -> None:
    await in_a_turn(redis, agent, {"op": "save", "text": "old"}, number=8)
    await in_a_turn(redis, agent, {"op": "save", "text": "a week old"}, number=7)
    pinned = await add(http, "pinned", MIRA, pinned=True)
    await add(http, "everywhere")
    await add(http, "to Tom alone", "character:tom")
    view = await listed(http, character="mira")
    assert [(each.text, each.recent) for each in view.memories] == [
        ("pinned", True),
        ("everywhere", True),
        ("a week old", True),
        ("old", False),
    ]
    assert [(each.scope, each.pinned, each.unpinned) for each in view.scopes] == [
        ("global", 0, 1),
        (MIRA, 1, 2),
    ]
    assert (view.scopes[0].pinned_limit, view.scopes[0].unpinned_limit) == (20, 100)
    assert (view.learn_from_chat, view.version) == (True, 5)
    old = view.memories[-1]
    assert (old.by, old.character, old.created_by, old.version) == ("character", "mira", "character", 1)
    assert old.source == Source(chat="c1", turn="t8")
    assert old.updated_at == NOW - timedelta(days=8)
    assert pinned.memory == view.memories[0]
    assert {each.scope for each in (await listed(http)).scopes} == {"global", MIRA, "character:tom"}
    assert [each.text for each in (await listed(http, scope="global")).memories] == ["everywhere"]


async def test_the_etag_changes_with_the_memories(http: httpx.AsyncClient) -> None:
    first = await http.get(MEMORIES)
    assert first.json()["memories"] == []
    headers = {"If-None-Match": first.headers["etag"]}
    assert (await http.get(MEMORIES, headers=headers)).status_code == 304
    added = await http.post(MEMORIES, json={"text": "x", "scope": "global"})
    assert (await http.get(MEMORIES, headers=headers)).headers["etag"] == added.headers["etag"]


@pytest.mark.rule("M7", "M11")
async def test_a_memory_is_edited_pinned_moved_and_deleted(http: httpx.AsyncClient) -> None:
    memory = id_of(await add(http, "first", MIRA))
    url = f"{MEMORIES}/{memory}"
    edited = await http.patch(url, json={"text": "second", "pinned": True, "scope": "global"})
    assert edited.status_code == 200
    now = edited.json()["memory"]
    assert (now["text"], now["pinned"], now["scope"], now["version"]) == ("second", True, "global", 4)
    same = await http.patch(url, json={"text": "second"})
    assert (same.json()["status"], same.json()["change"]) == ("unchanged", None)
    unpinned = await http.patch(url, json={"pinned": False})
    assert not unpinned.json()["memory"]["pinned"]
    deleted = await http.delete(url)
    assert (deleted.status_code, deleted.json()["memory"]) == (200, None)
    assert (await listed(http)).memories == ()
    changes = (await history(http)).changes
    assert [each.action for each in changes] == [
        "deleted",
        "unpinned",
        "pinned",
        "moved",
        "edited",
        "created",
    ]
    assert {each.by for each in changes} == {Author.user}
    assert (changes[3].scope, changes[3].from_scope) == ("global", MIRA)
    assert changes[4].before is not None
    assert changes[4].after is not None
    assert (changes[4].before.text, changes[4].after.text) == ("first", "second")
    assert [each.restorable for each in changes] == [True, False, False, False, True, False]


@pytest.mark.parametrize("memory", ["mem-unknown", "a/b", "ü"])
@pytest.mark.parametrize(("method", "body"), [("PATCH", {"text": "x"}), ("DELETE", None)])
async def test_an_unknown_memory_is_a_404(
    http: httpx.AsyncClient, memory: str, method: str, body: Any
) -> None:
    response = await http.request(method, f"{MEMORIES}/{quote(memory, safe='')}", json=body)
    assert response.status_code == 404
    assert response.json()["type"].endswith("unknown-memory")


# --- limits


@pytest.mark.rule("M3")
@pytest.mark.parametrize("text", ["🙂" * 500, "ก็" * 250, "e\u0301" * 250])
async def test_500_characters_are_counted_as_unicode(http: httpx.AsyncClient, text: str) -> None:
    written = await add(http, text)
    assert written.memory is not None
    assert written.memory.text == text
    response = await http.post(MEMORIES, json={"text": text + "x", "scope": "global"})
    assert response.status_code == 422
    [error] = response.json()["errors"]
    assert (error["field"], error["limit"]) == ("/text", 500)
    assert text not in response.text


@pytest.mark.rule("M3")
async def test_the_21st_pin_is_refused_with_its_limit(
    redis: Redis, agent: Applying, http: httpx.AsyncClient
) -> None:
    await fill(redis, agent, 20, pinned=True)
    memory = id_of(await add(http, "not pinned", MIRA))
    elsewhere = id_of(await add(http, "pinned", pinned=True))
    for response in (
        await http.post(MEMORIES, json={"text": "x", "scope": MIRA, "pinned": True}),
        await http.patch(f"{MEMORIES}/{memory}", json={"text": "else", "pinned": True}),
        await http.patch(f"{MEMORIES}/{elsewhere}", json={"scope": MIRA}),
    ):
        assert response.status_code == 409
        [error] = response.json()["errors"]
        assert (error["field"], error["limit"]) == ("/pinned", 20)
        assert "20 pins" in response.json()["detail"]
    # all or nothing: the text did not change either
    assert {each.text for each in (await listed(http, scope=MIRA)).memories} >= {"not pinned"}


@pytest.mark.rule("M3", "M11")
async def test_a_full_scope_displaces_and_the_history_restores(
    redis: Redis, agent: Applying, http: httpx.AsyncClient
) -> None:
    await fill(redis, agent, 100)
    written = await add(http, "one more", MIRA)
    assert written.displaced is not None
    gone = (await history(http, memory=written.displaced)).changes[0]
    assert (gone.action, gone.restorable) == ("displaced", True)
    restored = await http.post(f"{MEMORIES}/history/{gone.number}/restore")
    assert restored.status_code == 200
    assert restored.json()["memory"]["text"] == "fact False 0"
    assert restored.json()["displaced"] not in (None, written.displaced)
    view = await listed(http, scope=MIRA)
    assert (len(view.memories), view.memories[0].id) == (100, written.displaced)


@pytest.mark.rule("M11")
async def test_what_cannot_be_restored_says_so(http: httpx.AsyncClient) -> None:
    await add(http, "x")
    nothing = await http.post(f"{MEMORIES}/history/1/restore")
    assert (nothing.status_code, nothing.json()["errors"][0]["field"]) == (409, "/change")
    assert (await http.post(f"{MEMORIES}/history/7/restore")).status_code == 404
    assert (await http.post(f"{MEMORIES}/history/0/restore")).status_code == 422


@pytest.mark.rule("M11")
async def test_the_history_comes_in_pages(http: httpx.AsyncClient) -> None:
    memory = id_of(await add(http, "0"))
    for number in range(1, 7):
        await http.patch(f"{MEMORIES}/{memory}", json={"text": str(number)})
        await add(http, f"other {number}")
    for query in ({}, {"memory": memory}):
        pages, before = [], None
        while True:
            at = {"before": before} if before is not None else {}
            view = await history(http, limit=4, **query, **at)
            pages.append([each.number for each in view.changes])
            if view.next is None:
                break
            before = view.next
        numbers = [number for page in pages for number in page]
        whole = (await history(http, limit=200, **query)).changes
        assert numbers == [each.number for each in whole]
        assert numbers == sorted(numbers, reverse=True)
        assert len(numbers) == (13 if not query else 7)
    unknown = await http.get(f"{MEMORIES}/history", params={"memory": "mem-unknown"})
    assert unknown.status_code == 404
    assert (await http.get(f"{MEMORIES}/history", params={"limit": 201})).status_code == 422


# --- clearing, settings, a deleted character


@pytest.mark.rule("M8", "M10")
async def test_clearing_takes_two_calls_and_the_second_one_the_count(
    redis: Redis, agent: Applying, http: httpx.AsyncClient
) -> None:
    await fill(redis, agent, 3)
    await fill(redis, agent, 2, pinned=True)
    await add(http, "elsewhere")
    url = f"{MEMORIES}/clear"
    first = await http.post(url, json={"scope": MIRA})
    assert first.status_code == 200
    assert (first.json()["cleared"], first.json()["kept_pins"]) == (3, 2)
    assert [each.pinned for each in (await listed(http, scope=MIRA)).memories] == [True, True]
    for body in ({"scope": MIRA, "pinned": True}, {"scope": MIRA, "pinned": True, "expected": 3}):
        wrong = await http.post(url, json=body)
        assert (wrong.status_code, wrong.json()["kept_pins"]) == (409, 2)
        assert wrong.json()["errors"][0]["field"] == "/expected"
    assert len((await listed(http, scope=MIRA)).memories) == 2
    second = await http.post(url, json={"scope": MIRA, "pinned": True, "expected": 2})
    assert (second.json()["cleared"], second.json()["kept_pins"]) == (2, 0)
    assert [each.text for each in (await listed(http)).memories] == ["elsewhere"]
    # for good: the history tells that, and no longer what they said
    page = await http.get(f"{MEMORIES}/history", params={"limit": 200})
    assert "fact" not in page.text
    assert sum(each["action"] == "cleared" for each in page.json()["changes"]) == 5


@pytest.mark.rule("O1", "M11")
async def test_learning_is_switched_for_one_character(
    redis: Redis, agent: Applying, http: httpx.AsyncClient
) -> None:
    url = "/v1/users/u1/characters/mira/settings"
    assert (await http.get(url)).json() == {"character": "mira", "learn_from_chat": True, "deleted": False}
    off = await http.put(url, json={"learn_from_chat": False})
    assert (off.status_code, off.json()["learn_from_chat"]) == (200, False)
    assert (await http.get(url)).json()["learn_from_chat"] is False
    await in_a_turn(redis, agent, {"op": "save", "text": "not to be learned"})
    # by hand the user still may
    await add(http, "by hand", MIRA)
    view = await listed(http, character="mira")
    assert [each.text for each in view.memories] == ["by hand"]
    assert (view.learn_from_chat, view.learning_off) == (False, ("mira",))
    assert (await listed(http, character="tom")).learn_from_chat is True
    assert (await http.put(url, json={"learn_from_chat": True})).status_code == 200
    assert [each.action for each in (await history(http)).changes] == [
        "learning_on",
        "created",
        "learning_off",
    ]
    assert (await http.put(url, json={"learn_from_chat": "perhaps"})).status_code == 422


@pytest.mark.rule("M5")
async def test_memories_of_a_deleted_character_become_global(
    redis: Redis, agent: Applying, http: httpx.AsyncClient
) -> None:
    await fill(redis, agent, 2)
    await fill(redis, agent, 1, pinned=True)
    await fill(redis, agent, 99, scope="global")
    url = "/v1/users/u1/characters/mira"
    deleted = await http.delete(url)
    assert deleted.status_code == 200
    assert deleted.json()["memories"] == 3
    assert "history" in deleted.json()["notice"]
    view = await listed(http)
    assert [(each.scope, each.pinned, each.unpinned) for each in view.scopes] == [("global", 1, 100)]
    lost = next(each for each in (await history(http)).changes if each.action == "displaced")
    assert (await http.post(f"{MEMORIES}/history/{lost.number}/restore")).json()["memory"][
        "scope"
    ] == "global"
    assert (await http.get(f"{url}/settings")).json()["deleted"] is True
    assert (await http.put(f"{url}/settings", json={"learn_from_chat": False})).status_code == 409
    assert (await http.delete(f"{url}/settings")).status_code == 405


# --- who may


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "memories", None),
        ("POST", "memories", {"text": "x", "scope": "global"}),
        ("PATCH", "memories/m", {"text": "x"}),
        ("DELETE", "memories/m", None),
        ("GET", "memories/history", None),
        ("POST", "memories/history/1/restore", None),
        ("POST", "memories/clear", {"scope": "global"}),
        ("POST", "memories/generate", {"description": "x"}),
        ("POST", "memories/save", {"scope": "global", "drafts": [{"text": "x"}]}),
        ("GET", "characters/mira/settings", None),
        ("PUT", "characters/mira/settings", {"learn_from_chat": False}),
        ("DELETE", "characters/mira", None),
        ("GET", "memory-commands/k1", None),
    ],
)
async def test_a_user_token_opens_its_own_memories_alone(
    redis: Redis, agent: Applying, method: str, path: str, body: Any
) -> None:
    app = app_on(redis, agent)
    async with started(app, user_token("u2")) as http:
        response = await http.request(method, f"/v1/users/u1/{path}", json=body)
        assert response.status_code == 403
        http.headers["authorization"] = "Bearer wrong"
        response = await http.request(method, f"/v1/users/u1/{path}", json=body)
        assert response.status_code == 401
    assert not agent.records


async def test_a_service_acts_for_any_user(redis: Redis, agent: Applying) -> None:
    async with started(app_on(redis, agent)) as http:
        for user in ("u1", "a/b", "ü"):
            url = f"/v1/users/{quote(user, safe='')}/memories"
            assert (await http.post(url, json={"text": user, "scope": "global"})).status_code == 201
            assert [each["text"] for each in (await http.get(url)).json()["memories"]] == [user]
    assert [record.key.decode() for record in agent.records] == ["u1", "a/b", "ü"]


@pytest.mark.parametrize("user", ["a b", "a%7Bb", "x" * 201])
async def test_a_wrong_user_id_is_named(redis: Redis, agent: Applying, user: str) -> None:
    async with started(app_on(redis, agent)) as http:
        response = await http.get(f"/v1/users/{user}/memories")
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == "user"


@pytest.mark.rule("M3")
@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        (b"{", 400, None),
        (b"[]", 422, ""),
        (b"{}", 422, "/text"),
        (b'{"text": " ", "scope": "global"}', 422, "/text"),
        (b'{"text": "x", "scope": "persona:p"}', 422, "/scope"),
        (b'{"text": "x", "scope": "character:"}', 422, "/scope"),
        (b'{"text": "x", "scope": "global", "pin": true}', 422, "/pin"),
        (b" " * 65_537, 413, None),
    ],
)
async def test_a_wrong_body_names_the_field(
    http: httpx.AsyncClient, agent: Applying, body: bytes, status: int, field: str | None
) -> None:
    response = await http.post(MEMORIES, content=body)
    assert response.status_code == status
    if field is not None:
        assert response.json()["errors"][0]["field"] == field
    assert not agent.records


# --- commands


async def test_a_command_is_published_under_the_user_and_waited_for(
    redis: Redis, http: httpx.AsyncClient, agent: Applying
) -> None:
    written = await add(http, "x", MIRA, pinned=True)
    [record] = agent.records
    assert (record.topic, record.key) == ("memory.commands.v1", b"u1")
    command = json.loads(record.value)
    assert command["by"] == "user"
    assert command["ops"] == [{"op": "save", "text": "x", "scope": MIRA, "pinned": True}]
    result = await http.get(f"/v1/users/u1/memory-commands/{written.command_id}")
    assert result.json()["result"]["version"] == written.version == 1
    assert (await http.get("/v1/users/u1/memory-commands/unknown")).status_code == 404


async def test_a_result_that_comes_later_is_not_waited_for_for_ever(redis: Redis) -> None:
    agent = Applying()
    async with started(app_on(redis, agent, memory_timeout=0.05)) as http:
        response = await http.post(MEMORIES, json={"text": "x", "scope": "global"})
        assert response.status_code == 202
        place = response.json()["result"]
        assert response.headers["location"] == place
        assert (await http.get(place)).status_code == 404
        await agent.carry_out(redis)
        assert (await http.get(place)).json()["result"]["results"][0]["status"] == "applied"


async def test_a_result_that_cannot_be_read_is_one_to_ask_for_later(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> None:
        raise ConnectionLost("away")

    agent = Applying()
    async with started(app_on(redis, agent, memory_timeout=0.01)) as http:
        with monkeypatch.context() as lost:
            lost.setattr(store, "read_result", away)
            response = await http.post(MEMORIES, json={"text": "x", "scope": "global"})
        assert response.status_code == 202
        await agent.carry_out(redis)
        assert (await http.get(response.json()["result"])).status_code == 200


async def test_the_result_is_noticed_while_it_is_waited_for(redis: Redis) -> None:
    agent, published = Applying(), asyncio.Event()

    class Slow(Recorder):
        async def publish(self, records: Any) -> None:
            await agent.publish(records)
            published.set()

    async with started(app_on(redis, Slow(), memory_timeout=30.0)) as http:
        request = asyncio.create_task(http.post(MEMORIES, json={"text": "x", "scope": "global"}))
        await published.wait()
        # somebody else's result comes first
        other = MemoryOps(
            id="k-other", at=NOW, user_id="u1", by=Author.user, ops=({"op": "delete", "id": "m"},)
        )
        agent.records.append(Outgoing(Topics.MEMORY_COMMANDS, b"u1", other.model_dump_json().encode()))
        agent.records.reverse()
        await agent.carry_out(redis)
        assert (await request).status_code == 201


async def test_without_the_broker_it_is_a_503_that_says_where_to_ask(redis: Redis) -> None:
    class Lost(Applying):
        async def publish(self, records: Any) -> None:
            await super().publish(records)
            raise ConnectionError("the confirmation is lost")

    async with started(app_on(redis, Lost(redis=redis))) as http:
        response = await http.post(MEMORIES, json={"text": "x", "scope": "global"})
        assert (response.status_code, bool(response.headers["retry-after"])) == (503, True)
        # it was carried out: no word of a retry that doubles nothing
        assert "may be carried out" in response.json()["detail"]
        result = await http.get(response.json()["result"])
        assert result.json()["result"]["results"][0]["status"] == "applied"


class TestIdempotencyKey:
    async def test_a_repeat_changes_nothing_and_has_the_same_answer(
        self, http: httpx.AsyncClient, agent: Applying
    ) -> None:
        body = {"text": "x", "scope": "global"}
        first = await http.post(MEMORIES, json=body, headers={"Idempotency-Key": "k 1"})
        again = await http.post(MEMORIES, json=body, headers={"Idempotency-Key": "k 1"})
        assert (again.status_code, again.json()) == (201, first.json())
        assert len(agent.records) == 1
        assert len((await listed(http)).memories) == 1

    async def test_a_repeat_of_what_was_not_done_in_time_finds_it(self, redis: Redis) -> None:
        agent = Applying()
        body, headers = {"text": "x", "scope": "global"}, {"Idempotency-Key": "k1"}
        async with started(app_on(redis, agent, memory_timeout=0.05)) as http:
            first = await http.post(MEMORIES, json=body, headers=headers)
            again = await http.post(MEMORIES, json=body, headers=headers)
            assert (first.status_code, again.status_code) == (202, 202)
            assert again.json() == first.json()
            await agent.carry_out(redis)
            assert (await http.post(MEMORIES, json=body, headers=headers)).status_code == 201
            assert len((await listed(http)).memories) == 1

    async def test_a_refusal_is_repeated_too(self, http: httpx.AsyncClient) -> None:
        headers = {"Idempotency-Key": "k1"}
        url = f"{MEMORIES}/history/1/restore"
        await add(http, "x")
        for _ in range(2):
            assert (await http.post(url, headers=headers)).status_code == 409

    async def test_another_request_with_the_key_is_refused(
        self, http: httpx.AsyncClient, agent: Applying
    ) -> None:
        headers = {"Idempotency-Key": "k1"}
        memory = id_of(await add(http, "x"))
        await http.delete(f"{MEMORIES}/{memory}", headers=headers)
        for other in ("mem-other", f"{memory}x"):
            response = await http.delete(f"{MEMORIES}/{other}", headers=headers)
            assert response.status_code == 422
            assert response.json()["type"].endswith("idempotency-key-reused")
        assert len(agent.records) == 2

    async def test_a_key_that_was_forgotten_is_that_of_another_request(
        self, http: httpx.AsyncClient, redis: Redis, agent: Applying
    ) -> None:
        headers = {"Idempotency-Key": "k1"}
        memory = id_of(await add(http, "x"))
        await http.post(MEMORIES, json={"text": "y", "scope": "global"}, headers=headers)
        # what came with a key is forgotten after a day, results of commands are not
        await redis.delete(*[key async for key in redis.scan_iter("gateway:idempotency:*")])
        assert (await http.delete(f"{MEMORIES}/{memory}", headers=headers)).status_code == 200
        assert [each.text for each in (await listed(http)).memories] == ["y"]

    async def test_keys_of_different_clients_are_different(self, redis: Redis, agent: Applying) -> None:
        for token in (user_token("u1"), None):
            app = app_on(redis, agent)
            async with started(app, token) if token else started(app) as http:
                body = {"text": f"of {token is None}", "scope": "global"}
                response = await http.post(MEMORIES, json=body, headers={"Idempotency-Key": "k1"})
                assert response.status_code == 201
        assert int(await redis.hget(UserKeys.of("u1").watermark, "v") or 0) == 2
