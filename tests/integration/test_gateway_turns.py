"""POST /v1/turns: what is published, what is refused, and the same request again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from redis.asyncio import Redis

from schemas import limits
from schemas.delivery import Outgoing, Topics
from schemas.turns import TURN_EVENT
from services.deadletters.policy import BY
from tests.gateway import NOW, SERVICE, Recorder, app_on, client, play, turn, user_token


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.mark.rule("F1")
async def test_one_event_is_published_as_it_came_with_its_time_filled_in(
    redis: Redis, recorder: Recorder
) -> None:
    event = {**turn(1), "mood": "unknown to this version"}
    del event["at"]
    async with client(app_on(redis, recorder)) as http:
        response = await http.post("/v1/turns", json=event)
    assert response.status_code == 202
    assert response.json() == {
        "accepted": 1,
        "refused": 0,
        "items": [{"index": 0, "id": "c1-e1", "status": "accepted", "errors": []}],
    }
    (record,) = recorder.records
    assert (record.topic, record.key) == (Topics.TURNS, b"c1")
    assert json.loads(record.value) == {**event, "at": "2026-11-30T12:00:00Z"}
    assert TURN_EVENT.validate_json(record.value).at == NOW


async def test_good_events_are_not_lost_with_bad_ones(redis: Redis, recorder: Recorder) -> None:
    wrong_role, no_id, long_text, big = turn(2), turn(3), turn(4), turn(5)
    wrong_role["messages"][0]["role"] = "narrator"
    del no_id["id"]
    long_text["messages"][1]["text"] = "x" * (limits.MESSAGE_BYTES + 1)
    for message in big["messages"]:
        message["text"] = "y" * limits.MESSAGE_BYTES
    big["messages"] += [{**big["messages"][0], "id": f"b{at}"} for at in range(3)]
    rewind = {"type": "chat.rewound", "id": "r1", "chat": {"id": "c1"}, "turn": {"id": ""}}
    events = [turn(1), wrong_role, no_id, long_text, big, rewind, {"type": "else"}, {}, 7, turn(6)]
    async with client(app_on(redis, recorder)) as http:
        response = await http.post("/v1/turns", json=events)
    assert response.status_code == 202
    answer = response.json()
    assert (answer["accepted"], answer["refused"]) == (2, 8)
    assert [json.loads(record.value)["id"] for record in recorder.records] == ["c1-e1", "c1-e6"]
    items = answer["items"]
    assert [item["status"] for item in items] == ["accepted", *["invalid"] * 8, "accepted"]
    fields = [[error["field"] for error in item["errors"]] for item in items]
    assert fields[1:9] == [
        ["/messages/0/role"],
        ["/id"],
        ["/messages/1/text"],
        [""],
        ["/turn/id"],
        ["/type"],
        ["/type"],
        [""],
    ]
    assert str(limits.MESSAGE_BYTES) in items[3]["errors"][0]["message"]
    assert items[4]["errors"][0]["limit"] == limits.EVENT_BYTES
    # an error never repeats what was sent
    assert "xxx" not in response.text


@pytest.mark.parametrize(
    ("body", "status", "name"),
    [
        (b"{", 400, "not-json"),
        (b'{"id": NaN}', 400, "not-json"),
        (b'{"id": "\\ud800"}', 400, "not-json"),
        (b"[" * 5_000, 400, "not-json"),
        (b"", 400, "not-json"),
        (b"[]", 422, "wrong-batch"),
        (b"[" + b",".join([b"{}"] * 501) + b"]", 422, "wrong-batch"),
        (b"{}", 422, "invalid-events"),
        (b'"x"', 422, "invalid-events"),
        (b" " * (4 * 1024 * 1024 + 1), 413, "too-large"),
    ],
)
async def test_what_cannot_be_accepted_says_why(
    redis: Redis, recorder: Recorder, body: bytes, status: int, name: str
) -> None:
    async with client(app_on(redis, recorder)) as http:
        response = await http.post("/v1/turns", content=body)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == f"urn:afterturn:problem:{name}"
    assert not recorder.records


async def test_a_body_of_unknown_length_is_bounded_too(redis: Redis, recorder: Recorder) -> None:
    sent = 0

    async def parts() -> Any:
        nonlocal sent
        for _ in range(64):
            sent += 1
            yield b" " * 1024 * 1024

    async with client(app_on(redis, recorder)) as http:
        response = await http.post("/v1/turns", content=parts())
    assert response.status_code == 413


async def test_without_the_broker_the_answer_is_503_and_a_retry_may_follow(
    redis: Redis, recorder: Recorder
) -> None:
    recorder.error = ConnectionError("away")
    async with client(app_on(redis, recorder)) as http:
        headers = {"Idempotency-Key": "k1"}
        response = await http.post("/v1/turns", json=turn(1), headers=headers)
        assert response.status_code == 503
        assert response.headers["retry-after"]
        recorder.error = None
        assert (await http.post("/v1/turns", json=turn(1), headers=headers)).status_code == 202
    assert len(recorder.records) == 1


async def test_a_broker_that_hangs_is_not_waited_for_for_ever(redis: Redis) -> None:
    class Hanging(Recorder):
        async def publish(self, records: Sequence[Outgoing]) -> None:
            await asyncio.Event().wait()

    async with client(app_on(redis, Hanging(), publish_timeout=0.01)) as http:
        assert (await http.post("/v1/turns", json=turn(1))).status_code == 503


async def test_a_service_needs_no_redis_to_record(recorder: Recorder) -> None:
    async with Redis(port=1) as away, client(app_on(away, recorder)) as http:
        assert (await http.post("/v1/turns", json=turn(1))).status_code == 202
        # the key needs it: nothing is published that could be doubled
        response = await http.post("/v1/turns", json=turn(2), headers={"Idempotency-Key": "k"})
        assert response.status_code == 503
    assert len(recorder.records) == 1


async def test_what_comes_with_a_users_token_says_whose(redis: Redis, recorder: Recorder) -> None:
    for token in (user_token("ü1"), SERVICE):
        async with client(app_on(redis, recorder), token) as http:
            assert (await http.post("/v1/turns", json=turn(1, user="ü1"))).status_code == 202
    assert [record.headers for record in recorder.records] == [((BY, "ü1".encode()),), ()]


class TestIdempotencyKey:
    async def test_the_same_request_again_gets_the_same_answer(
        self, redis: Redis, recorder: Recorder
    ) -> None:
        async with client(app_on(redis, recorder)) as http:
            first = await http.post("/v1/turns", json=[turn(1), {}], headers={"Idempotency-Key": "k1"})
            again = await http.post("/v1/turns", json=[turn(1), {}], headers={"Idempotency-Key": "k1"})
        assert (again.status_code, again.content) == (202, first.content)
        assert again.headers["idempotency-replayed"] == "true"
        assert "idempotency-replayed" not in first.headers
        assert len(recorder.records) == 1

    async def test_another_body_is_refused(self, redis: Redis, recorder: Recorder) -> None:
        async with client(app_on(redis, recorder)) as http:
            await http.post("/v1/turns", json=turn(1), headers={"Idempotency-Key": "k1"})
            other = await http.post("/v1/turns", json=turn(2), headers={"Idempotency-Key": "k1"})
        assert other.status_code == 422
        assert other.json()["type"].endswith("idempotency-key-reused")
        assert len(recorder.records) == 1

    async def test_a_request_under_way_blocks_its_key(self, redis: Redis) -> None:
        class Slow(Recorder):
            def __init__(self) -> None:
                super().__init__()
                self.entered, self.go = asyncio.Event(), asyncio.Event()

            async def publish(self, records: Sequence[Outgoing]) -> None:
                self.entered.set()
                await self.go.wait()
                await super().publish(records)

        slow = Slow()
        async with client(app_on(redis, slow)) as http:
            headers = {"Idempotency-Key": "k1"}
            first = asyncio.create_task(http.post("/v1/turns", json=turn(1), headers=headers))
            await slow.entered.wait()
            second = await http.post("/v1/turns", json=turn(1), headers=headers)
            slow.go.set()
            assert (await first).status_code == 202
        assert second.status_code == 409
        assert second.headers["retry-after"]
        assert len(slow.records) == 1

    async def test_keys_of_different_clients_are_different(self, redis: Redis, recorder: Recorder) -> None:
        app = app_on(redis, recorder)
        for token, number in ((user_token("u1"), 1), (user_token("u2"), 2)):
            async with client(app, token) as http:
                event = turn(number, chat=f"c{number}", user=f"u{number}")
                response = await http.post("/v1/turns", json=event, headers={"Idempotency-Key": "k1"})
            assert response.status_code == 202

    @pytest.mark.parametrize("key", ["", "x" * 201])
    async def test_a_key_has_a_form(self, redis: Redis, recorder: Recorder, key: str) -> None:
        async with client(app_on(redis, recorder)) as http:
            response = await http.post("/v1/turns", json=turn(1), headers={"Idempotency-Key": key})
        assert response.status_code == 400

    async def test_a_refused_request_does_not_keep_the_key(self, redis: Redis, recorder: Recorder) -> None:
        async with client(app_on(redis, recorder)) as http:
            for body, status in (({}, 422), (turn(1), 202)):
                response = await http.post("/v1/turns", json=body, headers={"Idempotency-Key": "k1"})
                assert response.status_code == status


async def test_a_user_writes_only_in_their_own_name_and_chats(redis: Redis, recorder: Recorder) -> None:
    await play(redis, [turn(0, chat="theirs", user="u2"), turn(0, chat="nobody", user=None)])
    events = [
        turn(1, chat="new"),
        turn(1, chat="new2", user="u2"),
        turn(1, chat="new3", user=None),
        turn(1, chat="theirs"),
        turn(1, chat="nobody"),
        {},
    ]
    async with client(app_on(redis, recorder), user_token("u1")) as http:
        response = await http.post("/v1/turns", json=events)
        alone = await http.post("/v1/turns", json=events[3])
    assert response.status_code == 202
    items = response.json()["items"]
    assert [item["status"] for item in items] == ["accepted", *["forbidden"] * 4, "invalid"]
    assert [item["errors"][0]["field"] for item in items[1:5]] == [
        "/user/id",
        "/user/id",
        "/chat/id",
        "/chat/id",
    ]
    assert [record.key for record in recorder.records] == [b"new"]
    assert alone.status_code == 403
    assert alone.json()["items"][0]["status"] == "forbidden"


def taking_back(chat: str, user: str | None = "u1") -> list[dict[str, Any]]:
    """One event of each kind that is about a chat that is there already."""
    kinds: list[tuple[str, dict[str, Any]]] = [
        ("chat.rewound", {"turn": {"id": "t1"}}),
        ("message.edited", {"message": {"id": "m2", "text": "else"}}),
        ("message.deleted", {"message": {"id": "m2"}}),
        ("chat.deleted", {}),
    ]
    return [
        {
            "type": kind,
            "id": f"{chat}-{kind}",
            "chat": {"id": chat},
            "user": {"id": user} if user else None,
            **more,
        }
        for kind, more in kinds
    ]


def fork(chat: str, source: str, user: str = "u1") -> dict[str, Any]:
    """A chat begins as a copy of another one."""
    return {
        "type": "chat.forked",
        "id": f"{chat}-fork",
        "chat": {"id": chat},
        "user": {"id": user},
        "source": {"chat": source, "turn": "t0"},
    }


@pytest.mark.rule("W7", "W8", "F1")
async def test_what_takes_back_and_forks_is_published_in_its_place(redis: Redis, recorder: Recorder) -> None:
    again = {**turn(1), "type": "turn.regenerated", "id": "again"}
    events = [turn(1), again, *taking_back("c1"), fork("c2", "c1")]
    async with client(app_on(redis, recorder)) as http:
        response = await http.post("/v1/turns", json=events)
    assert (response.status_code, response.json()["accepted"]) == (202, len(events))
    assert [json.loads(record.value)["id"] for record in recorder.records] == [
        event["id"] for event in events
    ]
    assert {record.key for record in recorder.records[:-1]} == {b"c1"}
    assert recorder.records[-1].key == b"c2"
    assert TURN_EVENT.validate_json(recorder.records[3].value).at == NOW


@pytest.mark.rule("W7", "W8")
@pytest.mark.parametrize("chat", ["theirs", "nobody", "unknown"])
async def test_a_user_takes_back_only_what_is_theirs(redis: Redis, recorder: Recorder, chat: str) -> None:
    await play(redis, [turn(0, chat="theirs", user="u2"), turn(0, chat="nobody", user=None)])
    async with client(app_on(redis, recorder), user_token("u1")) as http:
        for event in taking_back(chat):
            response = await http.post("/v1/turns", json=event)
            assert response.status_code == 403, event
            assert response.json()["items"][0]["errors"][0]["field"] == "/chat/id"
        response = await http.post("/v1/turns", json=fork("new", chat))
        assert response.json()["items"][0]["errors"][0]["field"] == "/source/chat"
    assert not recorder.records


@pytest.mark.rule("W7", "W8")
async def test_a_user_takes_back_and_forks_what_is_theirs(redis: Redis, recorder: Recorder) -> None:
    await play(redis, [turn(0, chat="mine"), turn(0, chat="theirs", user="u2")])
    events = [
        *taking_back("mine"),
        fork("new", "mine"),
        *taking_back("new"),
        turn(0, chat="newest"),
        *taking_back("newest"),
        fork("theirs", "mine"),
        *taking_back("newest", user="u2"),
    ]
    async with client(app_on(redis, recorder), user_token("u1")) as http:
        response = await http.post("/v1/turns", json=events)
    statuses = [item["status"] for item in response.json()["items"]]
    assert statuses == ["accepted"] * (len(events) - 5) + ["forbidden"] * 5
