"""Tools of a model: their definitions, and calls that are checked as the agent would check them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import jsonschema
import pytest
from redis.asyncio import Redis

from schemas.delivery import Outgoing, Topics
from schemas.memories import Author, MemoryOps, Source
from services.memories import store
from services.state import keys
from tests.gateway import NOW, Applying, app_on, play, started, turn, user_token

URL = "/v1/chats/c1/memory-ops"
MIRA = "character:mira"
GROUP = {"chat": {"id": "c1", "surface": "web", "characters": ["mira", "tom"]}}


@pytest.fixture
def agent(redis: Redis) -> Applying:
    return Applying(redis=redis)


@pytest.fixture
async def http(redis: Redis, agent: Applying) -> AsyncIterator[httpx.AsyncClient]:
    await play(redis, [{**turn(0), **GROUP}])
    async with started(app_on(redis, agent)) as client:
        yield client


async def apply(agent: Applying, number: int, *ops: dict[str, Any], **who: Any) -> list[str]:
    """Carry out operations; ids of the memories."""
    command = MemoryOps(id=f"k{number}", at=NOW, user_id="u1", ops=ops, **who)
    await agent.publish([Outgoing(Topics.MEMORY_COMMANDS, b"u1", command.model_dump_json().encode())])
    assert agent.redis is not None
    value = await agent.redis.hget(keys.UserKeys.of("u1").commands, f"k{number}")
    assert value is not None
    results = json.loads(value)["results"]
    assert all(result["status"] != "refused" for result in results), results
    return [result["memory_id"] for result in results]


USER = {"by": Author.user}
OF_MIRA = {"by": Author.character, "character": "mira", "source": Source(chat="c1", turn="t0")}
OF_TOM = {"by": Author.character, "character": "tom", "source": Source(chat="c1", turn="t0")}


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


async def check(http: httpx.AsyncClient, *calls: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
    response = await http.post(URL, json={"calls": calls, **more})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.json()["calls"]
    return found


@pytest.mark.rule("M7")
async def test_the_tools_are_functions_of_a_chat_completion(http: httpx.AsyncClient) -> None:
    response = await http.get("/v1/tools/memory")
    assert response.status_code == 200
    tools = {tool["function"]["name"]: tool for tool in response.json()["tools"]}
    assert set(tools) == {"save_memory", "update_memory", "delete_memory"}
    for tool in tools.values():
        assert tool["type"] == "function"
        parameters = tool["function"]["parameters"]
        jsonschema.Draft202012Validator.check_schema(parameters)
        assert parameters["additionalProperties"] is False
        assert len(tool["function"]["description"]) <= 1_024
    assert (
        "500 characters"
        in tools["save_memory"]["function"]["parameters"]["properties"]["text"]["description"]
    )


@pytest.mark.rule("M7")
@pytest.mark.parametrize("form", [dict, json.dumps])
async def test_an_accepted_call_becomes_an_operation_of_the_turn_that_the_agent_applies(
    redis: Redis, agent: Applying, http: httpx.AsyncClient, form: Any
) -> None:
    calls = [
        {"id": "call-1", "name": "save_memory", "arguments": form({"text": "Theo owes Mira a crown."})},
        {
            "id": "call-2",
            "name": "save_memory",
            "arguments": form({"text": "Theo is 30.", "scope": "global"}),
        },
    ]
    checked = await check(http, *calls)
    assert [(each["id"], each["ok"], each["error"]) for each in checked] == [
        ("call-1", True, None),
        ("call-2", True, None),
    ]
    ops = [each["op"] for each in checked]
    assert [op["scope"] for op in ops] == [MIRA, "global"]
    assert [op["id"] for op in ops] == [each["memory_id"] for each in checked]
    assert not await redis.exists(keys.UserKeys.of("u1").watermark), "a check changes nothing"
    assert not agent.records
    assert await apply(agent, 1, *ops, **OF_MIRA) == [op["id"] for op in ops]


@pytest.mark.rule("M7")
async def test_the_same_reply_can_change_what_it_has_just_saved(
    http: httpx.AsyncClient, agent: Applying
) -> None:
    [saved] = await check(http, call("save_memory", text="Theo owes a crown."))
    later = [
        call("update_memory", id=saved["memory_id"], text="Theo owes two crowns."),
        call("delete_memory", id=saved["memory_id"]),
        call("update_memory", id=saved["memory_id"], text="x"),
    ]
    alone = await check(http, later[0])
    assert alone[0]["error"] == "id: no such entry"
    checked = await check(http, *later, ops=[saved["op"]])
    assert [each["ok"] for each in checked] == [True, True, False]
    assert checked[2]["error"] == "id: no such entry"
    await apply(agent, 1, saved["op"], checked[0]["op"], checked[1]["op"], **OF_MIRA)


@pytest.mark.rule("M7", "M8")
async def test_what_is_not_the_characters_to_change_says_why(
    http: httpx.AsyncClient, agent: Applying
) -> None:
    [typed, pin] = await apply(
        agent,
        1,
        {"op": "save", "text": "typed", "scope": MIRA},
        {"op": "save", "text": "pinned", "scope": MIRA, "pinned": True},
        **USER,
    )
    [own] = await apply(agent, 2, {"op": "save", "text": "of Mira"}, **OF_MIRA)
    [other] = await apply(agent, 3, {"op": "save", "text": "of Tom"}, **OF_TOM)
    for id, error in (
        (typed, "the user wrote this entry"),
        (pin, "pinned"),
        (other, "another character"),
        ("mem-unknown", "no such entry"),
    ):
        for checked in await check(
            http, call("update_memory", id=id, text="x"), call("delete_memory", id=id)
        ):
            assert not checked["ok"]
            assert error in checked["error"]
            assert checked["op"] is None
    [mine, theirs] = await check(http, call("delete_memory", id=own), call("delete_memory", id=other))
    assert (mine["ok"], theirs["ok"]) == (True, False)
    [by_tom] = await check(http, call("delete_memory", id=other), character="tom")
    assert by_tom["ok"]


@pytest.mark.rule("M3")
@pytest.mark.parametrize(
    ("given", "error"),
    [
        (call("save_memory", text="x" * 501), "text: has 501 characters, the limit is 500"),
        (call("save_memory", text="  "), "text: is empty"),
        (call("save_memory"), "text: "),
        (call("save_memory", text="x", scope="character:tom"), "scope: "),
        (call("update_memory", text="x"), "id: "),
        (call("remember", text="x"), "name: there is no such tool"),
        ({"name": "save_memory", "arguments": "{text"}, "arguments: are not JSON"),
        ({"name": "save_memory", "arguments": "[" * 100_000}, "arguments: are not JSON"),
        ({"name": "save_memory", "arguments": '"x"'}, "arguments: are not a JSON object"),
    ],
)
async def test_a_wrong_call_spoils_no_other_and_says_what_is_wrong(
    http: httpx.AsyncClient, given: dict[str, Any], error: str
) -> None:
    before, wrong, after = await check(
        http, call("save_memory", text="a"), given, call("save_memory", text="b")
    )
    assert (before["ok"], wrong["ok"], after["ok"]) == (True, False, True)
    assert wrong["error"].startswith(error)
    assert after["op"]["text"] == "b"


@pytest.mark.rule("M7")
async def test_an_echo_is_fine_and_its_operation_is_sent_all_the_same(
    http: httpx.AsyncClient, agent: Applying
) -> None:
    [there] = await apply(agent, 1, {"op": "save", "text": "Theo owes Mira a crown.", "scope": MIRA}, **USER)
    [checked] = await check(http, call("save_memory", text="theo owes mira a crown"))
    assert (checked["ok"], checked["status"], checked["memory_id"]) == (True, "echo", there)
    # what it repeats may be taken back before the turn comes: only then it is none
    assert await apply(agent, 2, checked["op"], **OF_MIRA) == [there]
    await apply(agent, 3, {"op": "delete", "id": there}, **USER)
    assert await apply(agent, 4, checked["op"], **OF_MIRA) == [checked["op"]["id"]]


# --- when memory is off


@pytest.mark.rule("O1")
async def test_with_learning_off_every_call_is_refused(http: httpx.AsyncClient) -> None:
    url = "/v1/users/u1/characters/mira/settings"
    assert (await http.put(url, json={"learn_from_chat": False})).status_code == 200
    [checked] = await check(http, call("save_memory", text="x", scope="global"))
    assert (checked["ok"], checked["op"]) == (False, None)
    assert "learning is off" in checked["error"]
    [of_tom] = await check(http, call("save_memory", text="x"), character="tom")
    assert of_tom["ok"]


@pytest.mark.rule("O3")
async def test_in_a_bounty_chat_every_call_is_refused(redis: Redis, http: httpx.AsyncClient) -> None:
    await redis.flushdb()
    await play(redis, [{**turn(0), "chat": {"id": "c1", "kind": "bounty", "characters": ["mira"]}}])
    [checked] = await check(http, call("save_memory", text="x"))
    assert (checked["ok"], "bounty" in checked["error"]) == (False, True)


@pytest.mark.rule("O4")
async def test_signed_out_every_call_is_refused(redis: Redis, http: httpx.AsyncClient) -> None:
    await redis.flushdb()
    await play(redis, [{**turn(0, user=None), **GROUP}])
    [checked] = await check(http, call("save_memory", text="x"))
    assert (checked["ok"], "signed out" in checked["error"]) == (False, True)


async def test_memories_that_do_not_stand_still_are_a_503(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as where others write between all the round trips
    monkeypatch.setattr(store, "_TRIPS", 0)
    response = await http.post(URL, json={"calls": [call("save_memory", text="x")]})
    assert (response.status_code, response.json()["type"]) == (503, "urn:afterturn:problem:unavailable")
    assert response.headers["retry-after"]


# --- whose memories


async def test_a_chat_without_a_turn_may_be_asked_about(redis: Redis, agent: Applying) -> None:
    body = {"calls": [call("save_memory", text="x")], "character": "mira"}
    async with started(app_on(redis, agent)) as http:
        unknown = await http.post("/v1/chats/new/memory-ops", json=body)
        assert (unknown.status_code, unknown.json()["errors"][0]["field"]) == (422, "/user")
        named = await http.post("/v1/chats/new/memory-ops", json={**body, "user": "u1"})
        assert named.json()["calls"][0]["op"]["scope"] == MIRA
    async with started(app_on(redis, agent), user_token("u1")) as http:
        own = await http.post("/v1/chats/new/memory-ops", json=body)
        assert own.json()["calls"][0]["ok"]


async def test_a_user_asks_about_their_own_chats_and_memories(
    redis: Redis, agent: Applying, http: httpx.AsyncClient
) -> None:
    body = {"calls": [call("save_memory", text="x")]}
    async with started(app_on(redis, agent), user_token("u2")) as other:
        assert (await other.post(URL, json=body)).status_code == 404
        named = await other.post("/v1/chats/new/memory-ops", json={**body, "user": "u1"})
        assert named.status_code == 403
    wrong = await http.post(URL, json={**body, "character": "ada"})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "/character")


@pytest.mark.parametrize(
    "body",
    [
        {"calls": []},
        {"calls": [call("save_memory", text="x")] * 51},
        {"calls": [call("save_memory", text="x")] * 2, "ops": [{"op": "save"}] * 49},
        {"calls": [{"name": "save_memory"}]},
        {"calls": [{"name": "save_memory", "arguments": 7}]},
    ],
)
async def test_a_wrong_request_is_refused_whole(http: httpx.AsyncClient, body: dict[str, Any]) -> None:
    assert (await http.post(URL, json=body)).status_code == 422


async def test_of_many_wrong_elements_the_first_is_named(http: httpx.AsyncClient) -> None:
    wrong = {"calls": [{"name": 7}] * 50}
    fields = [error["field"] for error in (await http.post(URL, json=wrong)).json()["errors"]]
    assert fields == ["/calls/0/name", "/calls/0/arguments"]
