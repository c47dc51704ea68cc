"""Taking back beside what else happens to a chat: the summariser, a Redis that forgets or is full, another worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, ResponseError

from schemas.chat import ChatRef
from schemas.delivery import Topics
from schemas.usage import Stage, UsageBooked
from services.state import keys
from services.summaries import announce
from services.summaries.announce import Use
from services.summaries.store import note
from services.takeback import store
from services.work import Work
from tests.integration.summaries_state import Clock
from tests.integration.takeback_state import announced, recorded
from tests.integration.test_takeback import MODEL, Chat, of, rewound


@pytest.fixture
def chat(redis: Redis) -> Chat:
    return Chat(redis)


def regenerated(turn: int, event: str = "again") -> dict[str, Any]:
    said = [(f"m{turn}.0", f"asks-{turn:05d}"), (f"m{turn}.{event}", "better-one")]
    return recorded(f"t{turn}", said, event, model=MODEL) | {"type": "turn.regenerated"}


def replaced(chat: Chat, turn: int, event: str = "again") -> None:
    """The turn as `regenerated` left it, for the check of the whole chat."""
    said = regenerated(turn, event)["messages"]
    chat.turns[turn] = (f"t{turn}", "", [(message["id"], message["text"]) for message in said])


@pytest.mark.rule("W7")
async def test_redis_forgets_the_scripts_and_the_process_dies_at_each_refusal(
    chat: Chat, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.record(*range(9))
    # a restart of Redis, and the first event behind it takes something back
    await redis.script_flush()
    await chat.take(rewound(7))
    del chat.turns[8:]
    event, asked = chat.event(regenerated(7)), store.at_once

    async def dies(*arguments: Any, **named: Any) -> Any:
        try:
            return await asked(*arguments, **named)
        except NoScriptError:
            raise ConnectionError("died") from None

    with monkeypatch.context() as patched:
        patched.setattr(store, "at_once", dies)
        try:
            await chat.apply(event)
        except ConnectionError:
            await chat.state()
    assert isinstance(await chat.apply(event), Work)
    replaced(chat, 7)
    await chat.state()


@pytest.mark.rule("W7")
async def test_a_full_redis_takes_no_turn_back_that_it_cannot_record_anew(chat: Chat, redis: Redis) -> None:
    await chat.record(*range(9))
    event = chat.event(regenerated(8))
    await redis.config_set("maxmemory", "1")
    try:
        with pytest.raises(ResponseError):
            await chat.apply(event)
    finally:
        await redis.config_set("maxmemory", "0")
    await chat.state()
    assert isinstance(await chat.apply(event), Work)
    replaced(chat, 8)
    await chat.state()


def after(read: str, chat: Chat, meanwhile: Callable[[], Awaitable[Any]], *, key: str | None = None) -> None:
    """Something happens once, right after the next event has read something (`key`) by this command of Redis."""
    back = chat.window._back
    ask = back._ask

    async def asked(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        answers = await ask(commands)
        if any(command[0] == read and key in (None, command[1]) for command in commands):
            back._ask = ask
            await meanwhile()
        return answers

    back._ask = asked


@pytest.mark.rule("W7")
@pytest.mark.parametrize(
    "body",
    [
        {"type": "message.edited", "message": {"id": "m1.0", "text": "other-text"}},
        {"type": "message.deleted", "message": {"id": "m1.0"}},
        rewound(0),
        rewound(1),
    ],
)
async def test_the_chunk_that_is_taken_back_gets_its_summary_meanwhile(
    chat: Chat, body: dict[str, Any]
) -> None:
    works = [await chat.take(chat.turn(number)) for number in range(9)]
    chat.turns += [(f"t{n}", "", [(m["id"], m["text"]) for m in chat.turn(n)["messages"]]) for n in range(9)]

    async def summarised() -> None:
        for work in works:
            await chat.settle(work)

    after("LRANGE", chat, summarised)
    work = await chat.take(body)
    assert chat.quoting.calls == 2
    if body["type"] == "chat.rewound":
        del chat.turns[int(body["turn"]["id"][1:]) + 1 :]
    else:
        chat.turns[1][2][0] = ("m1.0", body["message"].get("text"))
    await chat.state()
    await chat.settle(work)
    await chat.state()


@pytest.mark.rule("W7")
async def test_another_worker_has_carried_the_event_out_meanwhile(chat: Chat, redis: Redis) -> None:
    await chat.record(*range(9))
    event = chat.event({"type": "message.edited", "message": {"id": "m1.0", "text": "other-text"}})
    other = Chat(redis)
    after("SISMEMBER", chat, lambda: other.apply(event))
    work = await chat.apply(event)
    assert isinstance(work, Work)
    assert work.repeated
    assert len(announced(work)[0]) == 1
    chat.turns[1][2][0] = ("m1.0", "other-text")
    await chat.state()


@pytest.mark.rule("C1", "W7")
@pytest.mark.parametrize("agent", ["summarise", "merge"])
async def test_what_a_call_has_cost_is_noted_while_its_chat_is_deleted(
    chat: Chat, redis: Redis, agent: str
) -> None:
    await chat.record(*range(9))
    [(field, entry)] = announce.booked(
        Use(ChatRef(id="c1"), "u1", Stage.chunk, "m", 7, 0), Clock()(), ("failed",)
    ).items()
    after("HGETALL", chat, lambda: note(redis, "c1", agent, {field: entry}), key=keys.outbox("c1", agent))
    deleted = await chat.take({"type": "chat.deleted"})
    assert of(deleted.publish, Topics.USAGE) == []
    # the summariser reads the tombstone of the chat
    work = await chat.summaries.tombstone("c1")
    [booked] = of(work.publish, Topics.USAGE)
    assert UsageBooked.model_validate_json(booked).tokens_in == 7
    assert work.confirmed is not None
    await work.confirmed()
    assert await redis.keys("{c:c1}:*") == [b"{c:c1}:w"]
    assert (await chat.summaries.tombstone("c1")).publish == ()
