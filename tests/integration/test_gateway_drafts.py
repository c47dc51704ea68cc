"""Memories that are drafted, looked over, and saved as pins."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as ConnectionLost

from schemas.delivery import Outgoing, Topics
from schemas.saved_memories import DraftsView
from schemas.usage import Stage, UsageBooked
from services.drafts import booking
from services.drafts.booking import Use
from services.drafts.port import Draft, Drafts
from services.llm.port import Unanswered
from services.summaries.port import SourceMessage
from tests.gateway import NOW, Applying, Recorder, app_on, play, started, summarise, turn, user_token

MIRA = "character:mira"
WEB = {"id": "c1", "surface": "web", "characters": ["mira"]}
DRAFT = "/v1/chats/c1/memories/draft"
GENERATE = "/v1/users/u1/memories/generate"
SAVE = "/v1/users/u1/memories/save"

pytestmark = pytest.mark.rule("M7")


class Scripted:
    """A drafter that a test sees working."""

    model = "scripted"

    def __init__(self) -> None:
        self.read: list[Sequence[SourceMessage]] = []
        self.failure: Unanswered | None = None

    async def from_description(self, description: str) -> Drafts:
        return self._drafts([Draft(part) for part in description.split(". ")])

    async def from_messages(self, messages: Sequence[SourceMessage]) -> Drafts:
        self.read.append(messages)
        return self._drafts([Draft(f"of {message.id}", (message.id,)) for message in messages][:5])

    async def close(self) -> None:
        """Nothing is held."""

    def _drafts(self, drafts: list[Draft]) -> Drafts:
        if self.failure is not None:
            raise self.failure
        return Drafts(tuple(drafts), self.model, "scripted-1", 100, 10)


@pytest.fixture
def agent(redis: Redis) -> Applying:
    return Applying(redis=redis)


@pytest.fixture
def drafter() -> Scripted:
    return Scripted()


@pytest.fixture
def app(redis: Redis, agent: Applying, drafter: Scripted) -> FastAPI:
    return app_on(redis, agent, drafter=drafter)


@pytest.fixture
async def http(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    async with started(app, user_token("u1")) as client:
        yield client


def said(number: int, **how: Any) -> dict[str, Any]:
    """A turn of the chat."""
    return {**turn(number, **how), "chat": WEB}


def uses(agent: Recorder) -> list[UsageBooked]:
    return [
        UsageBooked.model_validate_json(record.value)
        for record in agent.records
        if record.topic == Topics.USAGE
    ]


async def drafts(http: httpx.AsyncClient, url: str, **body: Any) -> DraftsView:
    response = await http.post(url, json=body)
    assert response.status_code == 200, response.text
    return DraftsView.model_validate_json(response.content)


async def pin(http: httpx.AsyncClient, count: int, scope: str) -> None:
    for start in range(0, count, 10):
        chosen = [{"text": f"pin {n}"} for n in range(start, min(count, start + 10))]
        response = await http.post(SAVE, json={"scope": scope, "drafts": chosen})
        assert response.status_code == 201


# --- from a description


async def test_a_description_becomes_drafts_and_no_chat_is_read(
    redis: Redis, http: httpx.AsyncClient, drafter: Scripted
) -> None:
    view = await drafts(http, GENERATE, description="Ida is a sister. Bruno is a dog", character="mira")
    assert [(each.text, each.fits, each.source) for each in view.drafts] == [
        ("Ida is a sister", True, None),
        ("Bruno is a dog", True, None),
    ]
    assert (view.scope, view.pinned, view.pinned_limit, view.model) == (MIRA, 0, 20, "scripted")
    assert not drafter.read
    assert (await drafts(http, GENERATE, description="x")).scope == "global"
    assert (await drafts(http, GENERATE, description="x", character="mira", scope="global")).scope == "global"


@pytest.mark.parametrize("size", [1_000, 1_001])
async def test_a_description_has_at_most_1000_characters(http: httpx.AsyncClient, size: int) -> None:
    response = await http.post(GENERATE, json={"description": "🙂" * size})
    if size <= 1_000:
        assert response.status_code == 200
    else:
        [error] = response.json()["errors"]
        assert (response.status_code, error["field"], error["limit"]) == (422, "/description", 1_000)


# --- from messages


async def test_chosen_messages_are_found_wherever_they_are(
    redis: Redis, http: httpx.AsyncClient, drafter: Scripted
) -> None:
    chunks = await play(redis, [said(number) for number in range(60)])
    for chunk in chunks[:-1]:
        await summarise(redis, chunk)
    assert len(chunks) > 3
    # archived, pending, live; in any order, one of them twice
    ids = ["m119", "m1", "m0", "m25", "m58", "m1"]
    view = await drafts(http, DRAFT, messages=ids)
    [read] = drafter.read
    assert [message.id for message in read] == ["m0", "m1", "m25", "m58", "m119"]
    assert read[0].text.startswith("q0 ")
    assert [message.seq for message in read] == [0, 1, 25, 58, 119]
    assert view.drafts[0].source is not None
    assert view.drafts[0].source.model_dump(mode="json") == {"chat": "c1", "turn": None, "messages": ["m0"]}
    assert view.scope == MIRA


async def test_originals_are_the_messages_and_ask_no_model(
    redis: Redis, http: httpx.AsyncClient, drafter: Scripted, agent: Applying
) -> None:
    await play(redis, [said(0), said(1, size=300)])
    view = await drafts(http, DRAFT, messages=["m1", "m3"], mode="originals")
    assert [(each.text, each.fits) for each in view.drafts] == [("ok " * 5, True), ("ok " * 300, False)]
    [error] = view.drafts[1].errors
    assert (error.field, error.limit, view.drafts[1].characters) == ("text", 500, 900)
    assert view.model is None
    assert not drafter.read
    assert not uses(agent)


async def test_messages_that_the_chat_does_not_have_are_named(
    redis: Redis, http: httpx.AsyncClient, drafter: Scripted
) -> None:
    await play(redis, [said(0)])
    response = await http.post(DRAFT, json={"messages": ["m0", "m7", "m1", "m8"]})
    assert response.status_code == 422
    assert [error["field"] for error in response.json()["errors"]] == ["/messages/1", "/messages/3"]
    for messages in ([], [f"m{n}" for n in range(21)]):
        response = await http.post(DRAFT, json={"messages": messages})
        assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "/messages")
    assert not drafter.read


@pytest.mark.rule("M3")
async def test_drafts_say_how_much_room_there_is(redis: Redis, http: httpx.AsyncClient) -> None:
    await play(redis, [said(number) for number in range(3)])
    await pin(http, 18, MIRA)
    view = await drafts(http, DRAFT, messages=[f"m{n}" for n in range(5)])
    assert (view.pinned, [each.fits for each in view.drafts]) == (18, [True, True, False, False, False])
    assert [(error.field, error.limit) for error in view.drafts[2].errors] == [("pinned", 20)]
    assert all(each.fits for each in (await drafts(http, GENERATE, description="x")).drafts)


# --- saving


@pytest.mark.rule("M8", "M11")
async def test_what_is_saved_arrives_pinned_with_its_source(redis: Redis, http: httpx.AsyncClient) -> None:
    await play(redis, [said(0)])
    view = await drafts(http, DRAFT, messages=["m0", "m1"])
    chosen = [
        {"text": f"{each.text}, edited", "source": each.source and each.source.model_dump(mode="json")}
        for each in view.drafts
    ]
    response = await http.post(SAVE, json={"scope": MIRA, "drafts": chosen})
    assert response.status_code == 201
    saved = response.json()["memories"]
    assert [(each["text"], each["pinned"], each["by"]) for each in saved] == [
        ("of m0, edited", True, "user"),
        ("of m1, edited", True, "user"),
    ]
    assert saved[1]["source"] == {"chat": "c1", "turn": None, "messages": ["m1"]}
    history = (await http.get("/v1/users/u1/memories/history")).json()["changes"]
    assert history[0]["source"] == saved[1]["source"]


@pytest.mark.rule("W7")
async def test_a_draft_whose_messages_are_gone_is_not_saved(
    redis: Redis, http: httpx.AsyncClient, agent: Applying
) -> None:
    await play(redis, [said(0)])
    chosen = [{"text": "x", "source": {"chat": "c1", "messages": ["m0", gone]}} for gone in ("m1", "m7")]
    response = await http.post(SAVE, json={"scope": MIRA, "drafts": chosen})
    assert (response.status_code, response.json()["type"]) == (422, "urn:afterturn:problem:unknown-message")
    assert [error["field"] for error in response.json()["errors"]] == ["/drafts/1/source/messages/1"]
    assert not agent.records


@pytest.mark.rule("M3")
async def test_what_does_not_fit_is_refused_whole(
    redis: Redis, http: httpx.AsyncClient, agent: Applying
) -> None:
    await pin(http, 18, MIRA)
    before = len(agent.records)
    chosen = [{"text": f"one more {n}"} for n in range(3)]
    full = await http.post(SAVE, json={"scope": MIRA, "drafts": chosen})
    assert full.status_code == 409
    assert [(each["field"], each["limit"]) for each in full.json()["errors"]] == [("/drafts/2/pinned", 20)]
    long = await http.post(SAVE, json={"scope": MIRA, "drafts": [{"text": "fits"}, {"text": "x" * 501}]})
    assert long.status_code == 422
    assert [(each["field"], each["limit"]) for each in long.json()["errors"]] == [("/drafts/1/text", 500)]
    assert len(agent.records) == before
    assert len((await http.get("/v1/users/u1/memories")).json()["memories"]) == 18


@pytest.mark.rule("M3")
async def test_pins_that_came_in_between_do_not_split_the_drafts(
    redis: Redis, http: httpx.AsyncClient, agent: Applying, app: FastAPI
) -> None:
    await pin(http, 18, MIRA)
    # the gateway looks before, the agent when the other pin is there: nothing of the drafts may be saved
    agent.redis = None
    body = {"scope": MIRA, "drafts": [{"text": "a"}, {"text": "b"}]}
    async with started(app_on(redis, agent, memory_timeout=0.01), user_token("u1")) as hasty:
        assert (
            await hasty.post("/v1/users/u1/memories", json={"text": "x", "scope": MIRA, "pinned": True})
        ).status_code == 202
        assert (await hasty.post(SAVE, json=body, headers={"Idempotency-Key": "k"})).status_code == 202
        agent.redis = redis
        await agent.carry_out(redis)
        refused = await hasty.post(SAVE, json=body, headers={"Idempotency-Key": "k"})
    assert refused.status_code == 409
    assert {each["field"] for each in refused.json()["errors"]} == {"/drafts/1/pinned"}
    assert len((await http.get("/v1/users/u1/memories")).json()["memories"]) == 19


async def test_a_repeat_with_its_key_saves_once(http: httpx.AsyncClient) -> None:
    await pin(http, 18, "global")
    body, headers = {"scope": "global", "drafts": [{"text": "a"}, {"text": "b"}]}, {"Idempotency-Key": "k"}
    first = await http.post(SAVE, json=body, headers=headers)
    again = await http.post(SAVE, json=body, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["memories"] == first.json()["memories"]


# --- when memory is off


async def refused(http: httpx.AsyncClient, why: str) -> None:
    """Neither drafting from the chat nor saving what is said to be from it."""
    source = {"chat": "c1", "messages": ["m0"]}
    for url, body in (
        (DRAFT, {"messages": ["m0"]}),
        (DRAFT, {"messages": ["m0"], "mode": "originals", "scope": "global"}),
        (SAVE, {"scope": "global", "drafts": [{"text": "x"}, {"text": "y", "source": source}]}),
    ):
        response = await http.post(url, json=body)
        assert response.status_code == 409, url
        assert response.json()["type"].endswith("memory-off")
        assert why in response.json()["detail"]


@pytest.mark.rule("O1")
async def test_with_learning_off_nothing_is_drafted_from_the_chat(
    redis: Redis, http: httpx.AsyncClient, drafter: Scripted
) -> None:
    await play(redis, [said(0)])
    url = "/v1/users/u1/characters/mira/settings"
    assert (await http.put(url, json={"learn_from_chat": False})).status_code == 200
    await refused(http, "learning is off")
    assert not drafter.read
    # what the user writes themselves is theirs to save
    assert (await http.post(SAVE, json={"scope": "global", "drafts": [{"text": "x"}]})).status_code == 201
    assert (await http.post(GENERATE, json={"description": "x"})).status_code == 200


@pytest.mark.rule("O3")
async def test_nothing_is_drafted_from_a_bounty_chat(
    redis: Redis, http: httpx.AsyncClient, drafter: Scripted
) -> None:
    await play(redis, [{**said(0), "chat": {**WEB, "kind": "bounty"}}])
    await refused(http, "bounty")
    assert not drafter.read


@pytest.mark.rule("O4")
async def test_nothing_is_drafted_signed_out(redis: Redis, app: FastAPI, drafter: Scripted) -> None:
    await play(redis, [said(0, user=None)])
    async with started(app) as service:
        await refused(service, "signed out")
    assert not drafter.read


async def test_a_chat_of_somebody_else_is_not_read(
    redis: Redis, http: httpx.AsyncClient, drafter: Scripted
) -> None:
    await play(redis, [said(0, user="u2")])
    for url in (DRAFT, "/v1/chats/unknown/memories/draft"):
        assert (await http.post(url, json={"messages": ["m0"]})).status_code == 404
    for chat in ("c1", "unknown"):
        body = {"scope": "global", "drafts": [{"text": "x", "source": {"chat": chat}}]}
        response = await http.post(SAVE, json=body)
        assert (response.status_code, response.json()["errors"][0]["field"]) == (422, "/drafts/0/source/chat")
    assert not drafter.read


# --- what it costs


@pytest.mark.rule("C1")
async def test_what_drafting_costs_is_booked(redis: Redis, http: httpx.AsyncClient, agent: Applying) -> None:
    await play(redis, [said(0)])
    await drafts(http, DRAFT, messages=["m0"])
    await drafts(http, GENERATE, description="x", character="tom")
    draft, generation = uses(agent)
    assert (draft.stage, draft.chat_id, draft.character) == (Stage.draft, "c1", "mira")
    assert (generation.stage, generation.chat_id, generation.character) == (Stage.generation, None, "tom")
    for use in (draft, generation):
        assert (use.user_id, use.model, use.tokens_in, use.tokens_out) == ("u1", "scripted", 100, 10)
    assert {record.key for record in agent.records} == {b"u1"}
    assert draft.id != generation.id


@pytest.mark.rule("C1")
async def test_a_failure_is_booked_too_and_answered_with_503(
    http: httpx.AsyncClient, agent: Applying, drafter: Scripted
) -> None:
    drafter.failure = Unanswered("no", tokens_in=2_000, tokens_out=7)
    response = await http.post(GENERATE, json={"description": "x"}, headers={"Idempotency-Key": "k"})
    assert (response.status_code, response.json()["type"]) == (503, "urn:afterturn:problem:no-drafts")
    [use] = uses(agent)
    assert (use.tokens_in, use.tokens_out) == (2_000, 7)
    drafter.failure = None
    again = await http.post(GENERATE, json={"description": "x"}, headers={"Idempotency-Key": "k"})
    assert again.status_code == 200


@pytest.mark.rule("C1", "C2")
async def test_a_use_that_cannot_be_published_is_booked_with_the_next_one(
    http: httpx.AsyncClient, agent: Applying
) -> None:
    agent.error = ConnectionError("away")
    assert (await http.post(GENERATE, json={"description": "x"})).status_code == 200
    assert not uses(agent)
    agent.error = None
    assert (await http.post(GENERATE, json={"description": "y"})).status_code == 200
    assert len({use.id for use in uses(agent)}) == 2
    assert (await http.post(GENERATE, json={"description": "z"})).status_code == 200
    assert len({use.id for use in uses(agent)}) == 3


class Noticing(Recorder):
    """A broker at which a test can wait."""

    def __init__(self) -> None:
        super().__init__()
        self.published = asyncio.Event()

    async def publish(self, records: Sequence[Outgoing]) -> None:
        await super().publish(records)
        self.published.set()


@pytest.mark.rule("C1", "C2")
async def test_a_use_that_a_process_left_behind_is_booked_when_the_next_one_starts(redis: Redis) -> None:
    broker = Noticing()
    app = app_on(redis, broker)
    left = Use("r1", NOW, "u7", Stage.generation, "scripted", tokens_in=100)
    await booking.note(app.state.deps.store, left)
    async with started(app):
        await broker.published.wait()
    assert [(use.user_id, use.tokens_in) for use in uses(broker)] == [("u7", 100)]


@pytest.mark.rule("C2")
async def test_drafts_that_are_paid_for_are_given_though_redis_does_not_answer_for_their_use(
    redis: Redis, drafter: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, publish, failures = Noticing(), booking.publish, [ConnectionLost("away")]

    async def away_once(*of: Any) -> None:
        if failures:
            raise failures.pop()
        await publish(*of)

    monkeypatch.setattr(booking, "publish", away_once)
    async with started(app_on(redis, broker, drafter=drafter), user_token("u1")) as http:
        assert (await http.post(GENERATE, json={"description": "x"})).status_code == 200
        await broker.published.wait()
    assert [use.user_id for use in uses(broker)] == ["u1"]


@pytest.mark.rule("C1")
async def test_a_repeat_with_its_key_pays_nothing_twice(http: httpx.AsyncClient, agent: Applying) -> None:
    headers = {"Idempotency-Key": "k"}
    first = await http.post(GENERATE, json={"description": "x"}, headers=headers)
    again = await http.post(GENERATE, json={"description": "x"}, headers=headers)
    assert again.content == first.content
    assert again.headers["idempotency-replayed"] == "true"
    assert len(uses(agent)) == 1


@pytest.mark.rule("W7")
async def test_drafting_keeps_nothing_of_what_the_chat_says(
    redis: Redis, http: httpx.AsyncClient, drafter: Scripted
) -> None:
    needle = "needle-in-a-message"
    event = said(0)
    event["messages"][0]["text"] = f"This is the {needle}"
    await play(redis, [event])
    before = sorted(await redis.keys())
    for mode in ("drafts", "originals"):
        body = {"messages": ["m0"], "mode": mode}
        response = await http.post(DRAFT, json=body, headers={"Idempotency-Key": mode})
        assert response.status_code == 200
    assert needle in response.text
    assert sorted(await redis.keys()) == before


async def test_without_a_model_drafts_come_from_the_texts(redis: Redis, agent: Applying) -> None:
    await play(redis, [said(0)])
    async with started(app_on(redis, agent), user_token("u1")) as http:
        view = await drafts(http, GENERATE, description="Ida is a sister. Bruno is a dog.")
        assert [each.text for each in view.drafts] == ["Ida is a sister.", "Bruno is a dog."]
        assert (await drafts(http, DRAFT, messages=["m0", "m1"])).model == "extractive"
    assert {use.model for use in uses(agent)} == {"extractive"}
