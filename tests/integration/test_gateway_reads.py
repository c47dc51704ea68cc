"""Reading and editing over HTTP, and who may."""

from __future__ import annotations

import time
from urllib.parse import quote

import httpx
import jwt
import pytest
from redis.asyncio import Redis

from schemas.context import ContextView
from schemas.memory_view import MemoryView
from schemas.summaries import Summary
from services.context import store
from services.gateway.server import serve
from tests.gateway import SECRET, Recorder, app_on, bearer, client, play, summarise, turn, user_token

ROUTES = [
    ("GET", "/v1/chats/c1/context"),
    ("GET", "/v1/chats/c1/memory"),
    ("GET", "/v1/chats/c1/events"),
    ("PATCH", "/v1/chats/c1/summaries/s1"),
    ("POST", "/v1/turns"),
    ("POST", "/v1/audit"),
]


@pytest.mark.rule("F2")
async def test_one_call_gives_the_context(redis: Redis) -> None:
    (chunk,) = await play(redis, [turn(number) for number in range(32)])
    await summarise(redis, chunk, rules=["never mention the sea"])
    async with client(app_on(redis, Recorder())) as http:
        response = await http.get("/v1/chats/c1/context")
        small = await http.get("/v1/chats/c1/context", params={"model_context": 300, "reserve": 40})
    view = ContextView.model_validate_json(response.content)
    assert view.parts[3].ids == (chunk.id,)
    assert "never mention the sea" in view.parts[3].text  # type: ignore[union-attr]
    assert (view.totals.messages, view.left_out) == (54, ())
    view = ContextView.model_validate_json(small.content)
    assert (view.totals.budget, view.totals.model_context, view.totals.reserve) == (260, 300, 40)
    assert view.totals.tokens <= 260
    assert view.left_out


@pytest.mark.parametrize("query", ["model_context=0", "model_context=x", "reserve=-1", "reserve=1e3"])
async def test_wrong_parameters_are_named(redis: Redis, query: str) -> None:
    async with client(app_on(redis, Recorder())) as http:
        response = await http.get(f"/v1/chats/c1/context?{query}")
    assert response.status_code == 422
    assert response.json()["errors"][0]["field"] == query.partition("=")[0]


@pytest.mark.parametrize("route", ["chats/c1/context", "chats/c1/memory", "users/u1/memories"])
async def test_a_misspelt_parameter_is_named(redis: Redis, route: str) -> None:
    await play(redis, [turn(1)])
    async with client(app_on(redis, Recorder())) as http:
        response = await http.get(f"/v1/{route}?modle_context=5")
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == ["modle_context"]


@pytest.mark.parametrize("chat", ["a/b", "x/context", "ü-1", "a.b:c@d", "50%"])
async def test_every_chat_id_can_stand_in_a_path(redis: Redis, chat: str) -> None:
    await play(redis, [turn(0, chat=chat)])
    async with client(app_on(redis, Recorder())) as http:
        response = await http.get(f"/v1/chats/{quote(chat, safe='')}/context")
    assert response.json()["chat_id"] == chat


async def test_the_memory_has_an_etag_that_changes_with_it(redis: Redis) -> None:
    (chunk,) = await play(redis, [turn(number) for number in range(32)])
    async with client(app_on(redis, Recorder())) as http:
        first = await http.get("/v1/chats/c1/memory")
        view = MemoryView.model_validate_json(first.content)
        assert view.pending.count == 14
        headers = {"If-None-Match": first.headers["etag"]}
        unchanged = await http.get("/v1/chats/c1/memory", headers=headers)
        assert (unchanged.status_code, unchanged.content) == (304, b"")
        await summarise(redis, chunk)
        assert (await http.get("/v1/chats/c1/memory", headers=headers)).status_code == 200


class TestEdit:
    @pytest.mark.rule("S6")
    async def test_an_edit_is_compare_and_set(self, redis: Redis) -> None:
        (chunk,) = await play(redis, [turn(number) for number in range(32)])
        await summarise(redis, chunk, rules=["never mention the sea"])
        recorder = Recorder()
        url = f"/v1/chats/c1/summaries/{chunk.id}"
        async with client(app_on(redis, recorder), user_token("u1")) as http:
            edited = await http.patch(url, json={"text": "Mira found the key."}, headers={"If-Match": '"1"'})
            late = await http.patch(url, json={"text": "x"}, headers={"If-Match": "1"})
            body = {"body": {"facts": ["the key is brass"]}}
            again = await http.patch(url, json=body, headers={"If-Match": edited.headers["etag"]})
        assert edited.status_code == 200
        summary = Summary.model_validate_json(edited.content)
        assert (summary.version, summary.text, summary.edited_by) == (2, "Mira found the key.", "user:u1")
        assert late.status_code == 412
        assert (late.json()["version"], late.headers["etag"]) == (2, '"2"')
        assert again.json()["body"]["facts"] == ["the key is brass"]
        chat = await store.read(redis, "c1")
        assert chat is not None
        assert chat.summaries[0].version == 3
        assert [record.topic for record in recorder.records] == ["chat.summaries.v1"] * 2

    @pytest.mark.rule("S6")
    async def test_an_edit_holds_where_it_cannot_be_announced(self, redis: Redis) -> None:
        (chunk,) = await play(redis, [turn(number) for number in range(32)])
        await summarise(redis, chunk)
        recorder = Recorder(error=ConnectionError("away"))
        async with client(app_on(redis, recorder)) as http:
            response = await http.patch(
                f"/v1/chats/c1/summaries/{chunk.id}", json={"text": "x"}, headers={"If-Match": "1"}
            )
        assert response.status_code == 200

    @pytest.mark.parametrize(
        ("match", "body", "status"),
        [
            (None, b'{"text": "x"}', 428),
            ("*", b'{"text": "x"}', 400),
            ("1", b"{", 400),
            ("1", b"{}", 422),
            ("1", b'{"text": " "}', 422),
            ("1", b'{"text": "x", "body": {}}', 422),
            ("1", b'{"body": {"rules": [{}]}}', 422),
            ("1", b'{"other": 1}', 422),
            ("1", b" " * 262_145, 413),
            ("1", b'{"text": "x"}', 404),
        ],
    )
    async def test_what_cannot_be_done_says_why(
        self, redis: Redis, match: str | None, body: bytes, status: int
    ) -> None:
        await play(redis, [turn(0)])
        async with client(app_on(redis, Recorder())) as http:
            headers = {} if match is None else {"If-Match": match}
            response = await http.patch("/v1/chats/c1/summaries/s1", content=body, headers=headers)
        assert response.status_code == status
        assert response.headers["content-type"] == "application/problem+json"


class TestAccess:
    @pytest.mark.parametrize(("method", "path"), ROUTES)
    @pytest.mark.parametrize(
        "header",
        [
            None,
            "Basic dTpw",
            "Bearer",
            "Bearer wrong",
            f"Bearer {jwt.encode({'sub': 'u1', 'exp': int(time.time()) - 1}, SECRET, 'HS256')}",
            f"Bearer {jwt.encode({'sub': 'u1'}, SECRET, 'HS256')}",
            f"Bearer {jwt.encode({'exp': int(time.time()) + 60}, SECRET, 'HS256')}",
            f"Bearer {jwt.encode({'sub': 'a b', 'exp': int(time.time()) + 60}, SECRET, 'HS256')}",
            f"Bearer {jwt.encode({'sub': 'u1', 'exp': int(time.time()) + 60}, SECRET + '!', 'HS256')}",
            f"Bearer {jwt.encode({'sub': 'u1', 'exp': int(time.time()) + 60}, SECRET * 2, 'HS512')}",
            f"Bearer {jwt.encode({'sub': 'u1', 'exp': int(time.time()) + 60}, None, 'none')}",
        ],
        ids=[
            "missing",
            "basic",
            "empty",
            "unknown",
            "expired",
            "no-exp",
            "no-sub",
            "bad-sub",
            "other-secret",
            "other-secret-hs512",
            "unsigned",
        ],
    )
    async def test_no_route_without_a_good_token(
        self, redis: Redis, method: str, path: str, header: str | None
    ) -> None:
        await play(redis, [turn(0)])
        async with client(app_on(redis, Recorder())) as http:
            del http.headers["authorization"]
            headers = {"Authorization": header} if header else {}
            response = await http.request(method, path, headers=headers, content=b"{}")
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"

    @pytest.mark.parametrize(("method", "path"), ROUTES[:4])
    async def test_a_chat_of_somebody_else_looks_like_none(
        self, redis: Redis, method: str, path: str
    ) -> None:
        app = app_on(redis, Recorder())
        headers = {**bearer(user_token("u2")), "If-Match": "1"}
        async with client(app) as http:
            unknown = await http.request(method, path, headers=headers, json={"text": "x"})
            await play(redis, [turn(0)])
            theirs = await http.request(method, path, headers=headers, json={"text": "x"})
        assert unknown.status_code == theirs.status_code == 404
        assert unknown.content == theirs.content

    async def test_a_chat_of_nobody_is_for_services(self, redis: Redis) -> None:
        await play(redis, [turn(0, user=None)])
        app = app_on(redis, Recorder())
        for token, status in ((user_token("u1"), 404), (None, 200)):
            async with client(app, token) if token else client(app) as http:
                assert (await http.get("/v1/chats/c1/memory")).status_code == status

    async def test_a_user_reads_their_own(self, redis: Redis) -> None:
        await play(redis, [turn(0)])
        async with client(app_on(redis, Recorder()), user_token("u1")) as http:
            assert (await http.get("/v1/chats/c1/context")).status_code == 200


class TestHealth:
    async def test_alive_and_ready(self, redis: Redis) -> None:
        async with client(app_on(redis, Recorder()), "no token is asked for") as http:
            assert (await http.get("/healthz")).json() == {"status": "ok"}
            assert (await http.get("/readyz")).json() == {"status": "ready"}

    async def test_not_ready_without_redis_or_broker(self, redis: Redis) -> None:
        async def no() -> bool:
            return False

        async with client(app_on(redis, Recorder(), broker_ready=no)) as http:
            response = await http.get("/readyz")
        assert response.status_code == 503
        assert "Kafka" in response.json()["detail"]
        async with Redis(port=1) as away, client(app_on(away, Recorder())) as http:
            assert (await http.get("/readyz")).status_code == 503
            assert (await http.get("/healthz")).status_code == 200
            response = await http.get("/v1/chats/c1/context")
        assert response.status_code == 503
        assert response.headers["retry-after"]

    async def test_metrics_name_routes_and_never_chats(self, redis: Redis) -> None:
        async with client(app_on(redis, Recorder())) as http:
            await http.get("/v1/chats/secret-chat/context")
            text = (await http.get("/metrics")).text
        line = (
            'afterturn_gateway_requests_total{method="GET",route="/v1/chats/{chat}/context",status="404"} 1.0'
        )
        assert line in text.splitlines()
        assert "secret-chat" not in text

    async def test_the_root_tells_where_the_rest_is(self, redis: Redis) -> None:
        async with client(app_on(redis, Recorder()), token="") as http:
            found = (await http.get("/")).json()
            assert found.pop("name") == "Afterturn"
            assert found.pop("version")
            assert {(await http.get(path)).status_code for path in found.values()} == {200}

    async def test_other_routes_and_methods_are_problems(self, redis: Redis) -> None:
        async with client(app_on(redis, Recorder())) as http:
            nowhere = await http.get("/v2")
            method = await http.delete("/v1/turns")
        assert nowhere.json()["type"] == "urn:afterturn:problem:no-such-route"
        assert (method.status_code, method.headers["allow"]) == (405, "POST")


def logged(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)


async def test_nothing_of_a_chat_is_logged(redis: Redis, caplog: pytest.LogCaptureFixture) -> None:
    event = turn(1)
    event["messages"][0]["text"] = "a very private thing"
    token = user_token("u1")
    async with client(app_on(redis, Recorder(error=ConnectionError("a very private thing"))), token) as http:
        await http.post("/v1/turns", json=event)
    assert "records not confirmed" in logged(caplog)
    assert "private" not in logged(caplog)
    assert token not in logged(caplog)


async def test_a_crash_is_a_problem_and_its_message_stays_out_of_the_log(
    redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken:
        async def edit(self, *_: object, **__: object) -> None:
            raise ValueError("a very private thing")

    await play(redis, [turn(0)])
    app = app_on(redis, Recorder(), summaries=Broken())
    handle = await serve(app, "127.0.0.1", 0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{handle.port}", headers=bearer()) as http:
        url = "/v1/chats/c1/summaries/s1"
        response = await http.patch(url, json={"text": "private"}, headers={"If-Match": "1"})
    await handle.stop()
    assert response.status_code == 500
    assert response.json()["type"] == "urn:afterturn:problem:internal"
    assert "request failed" in logged(caplog)
    assert "ValueError" in logged(caplog)
    assert "private" not in logged(caplog)
