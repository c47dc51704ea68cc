"""A long conversation through the whole pipeline, watched from the outside: every rule of it, on both brokers."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from services.tokens.counter import default_counter
from tests.e2e.frontend import (
    MODEL,
    SEEN,
    Frontend,
    Up,
    audited,
    covered,
    part,
    summarised,
    texts,
    turn,
    up,
    verbatim,
)
from tests.faults import journal, ledger
from tests.faults.load import PRICES, REPLY_MODEL, USAGE
from tests.stack import Broker

BALANCED, KEY_EVENTS = (10_000, 50), (6_000, 30)
TURNS = 130
"""260 messages: 21 chunks leave a window of 50, which is one long-term memory, one merged and a recent summary."""


class Watch:
    """Reads a chat's context again and again: at no read is there a hole, at each the window is within its bounds (W6)."""

    def __init__(self, frontend: Frontend, chat: str, sent: dict[str, str]) -> None:
        self.reads = 0
        self.most_pending = 0
        self._frontend = frontend
        self._chat = chat
        self._sent = sent
        self._covered = 0
        self._one = asyncio.Lock()
        """Reads are compared with those before them: an earlier answer must not arrive after a later one."""

    async def look(self) -> dict[str, Any] | None:
        """One read, checked."""
        async with self._one:
            return await self._look()

    async def _look(self) -> dict[str, Any] | None:
        published = len(self._sent)
        context = await self._frontend.context(self._chat)
        if context is None:
            return None
        self.reads += 1
        count = covered(context)
        assert self._covered <= count <= max(published, len(self._sent)), (
            "messages went, or came from nowhere"
        )
        self._covered = count
        found = verbatim(context)
        assert found.items() <= self._sent.items(), "a text is not what was sent"
        assert list(found) == list(self._sent)[count - len(found) : count], (
            "the newest ones are verbatim, in order"
        )
        live, pending = part(context, "live"), part(context, "pending")
        assert len(live["ids"]) <= BALANCED[1]
        assert live["tokens"] <= BALANCED[0]
        assert len(live["ids"]) % 2 == 0, "only whole turns leave (W4)"
        self.most_pending = max(self.most_pending, len(pending["ids"]))
        return context

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(0.02)


@asynccontextmanager
async def watched(watch: Watch) -> AsyncIterator[None]:
    """While the block runs; a finding of the watch fails it at its end."""
    task = asyncio.create_task(watch.watch())
    try:
        yield
    finally:
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, asyncio.CancelledError), result


async def publish(kafka: str, turns: list[dict[str, Any]], sent: dict[str, str]) -> None:
    """As any Kafka client does: the event as JSON, the chat's id as the key (F1)."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    for event in turns:
        sent |= texts([event])
        value = json.dumps(event, ensure_ascii=False).encode()
        await producer.send_and_wait("chat.turns.v1", key=event["chat"]["id"].encode(), value=value)
    await producer.stop()


@pytest.fixture
async def running(broker: Broker, tmp_path: Path) -> AsyncIterator[Up]:
    """`afterturn up` on the test's broker."""
    (tmp_path / "prices.yaml").write_text(PRICES)
    environment = {"AFTERTURN_PRICES": str(tmp_path / "prices.yaml")}
    async with up(broker.bootstrap, tmp_path / "data", **environment) as started:
        yield started


@pytest.mark.rule("W1", "W4", "W6", "S1", "S2", "S9", "C1", "C2", "F1", "F2", "F4")
async def test_a_long_conversation(running: Up, broker: Broker, tmp_path: Path) -> None:
    frontend, sent = running.frontend, dict[str, str]()
    turns = [turn(number) for number in range(TURNS)]
    watch = Watch(frontend, "c1", sent)
    async with watched(watch):
        await publish(broker.bootstrap, turns[:100], sent)
        await frontend.applied(100)
        for event in turns[100:]:
            sent |= texts([event])
            await frontend.post([event])
            # beside the watch, so that there are enough reads however fast the pipeline is
            await watch.look()
        await frontend.applied(TURNS)
        memory = await summarised(frontend, "c1")
    assert watch.reads > 20
    assert watch.most_pending > 0
    context = await watch.look()
    assert context is not None

    # tiers and their spans; what is pending and how old it is; the share that is summarised
    tiers = {tier["tier"]: tier["summaries"] for tier in memory["tiers"]}
    assert [len(tiers[name]) for name in ("long_term", "merged", "recent")] == [1, 1, 1]
    assert [tiers[name][0]["span"]["messages"] for name in ("long_term", "merged", "recent")] == [160, 40, 10]
    assert (memory["live"]["count"], memory["pending"]["count"]) == (50, 0)
    assert memory["summarised"] == {"messages": 210, "of": 260, "share": pytest.approx(210 / 260)}
    await frontend.post([event := turn(TURNS)])
    sent |= texts([event])
    await frontend.applied(TURNS + 1)
    pending = (await frontend.memory())["pending"]
    assert (pending["count"], pending["chunks"]) == (2, 0)
    assert pending["ids"] == ["m210", "m211"]
    assert pending["oldest_age_seconds"] is not None

    # the context: parts in the order of the prompt, tokens that can be counted again
    tokens = default_counter()
    assert [each["part"] for each in context["parts"]] == [
        "memories",
        "long_term",
        "merged",
        "recent",
        "pending",
        "live",
    ]
    for name in ("pending", "live"):
        messages = part(context, name)["messages"]
        assert part(context, name)["tokens"] == sum(tokens(message["text"]) for message in messages)
    assert sum(each["tokens"] for each in context["parts"]) == context["totals"]["tokens"]
    small = await frontend.context(model_context=1_500, reserve=500)
    assert small is not None
    assert small["totals"]["tokens"] <= small["totals"]["budget"] == 1_000
    assert {left["reason"] for left in small["left_out"]} <= {"over_budget", "hole", "rules_only"}
    assert small["left_out"]

    await _stop(running)
    report = await audited(tmp_path / "data")
    assert report["read"]["messages"] == 2 * TURNS + 2
    booked = await asyncio.to_thread(ledger.read, tmp_path / "data" / "clickhouse")
    used = [entry.event for entry in (await journal.read(broker.bootstrap))[USAGE]]
    assert booked.uses == booked.ids == len({each["id"] for each in used})
    assert booked.replies == TURNS + 1
    worth = sum((ledger.price(REPLY_MODEL, 1_000 + number, 40) for number in range(TURNS + 1)), Decimal(0))
    # extractive summaries are booked, and cost nothing
    assert booked.uses > booked.replies
    assert booked.credits == booked.reply_credits == worth


async def _stop(running: Up) -> None:
    running.command.signal(signal.SIGTERM)
    ended = await running.command.ended(120)
    assert ended.code == 0, ended.err


@pytest.mark.rule("W1", "W3", "W4", "W5")
async def test_level_and_model_bound_the_window_from_the_next_turn_on(running: Up) -> None:
    frontend = running.frontend
    number = 0

    async def play(count: int, said: str = SEEN, **more: Any) -> dict[str, Any]:
        nonlocal number
        await frontend.post([{**turn(number + at, "w", said=said), **more} for at in range(count)])
        number += count
        await frontend.applied(number, "w")
        context = await frontend.context("w")
        assert context is not None
        assert covered(context) == 2 * number
        found = part(context, "live")
        assert isinstance(found, dict)
        return found

    assert len((await play(40))["ids"]) == BALANCED[1]
    # a million tokens keep no more
    assert (
        len((await play(5, model={"name": REPLY_MODEL, "context_window": 1_000_000}))["ids"]) == BALANCED[1]
    )
    # a small model: a quarter of its window, counted with this very turn; several chunks close at once
    small = await play(1, model={"name": REPLY_MODEL, "context_window": 4_000})
    assert 800 < small["tokens"] <= 1_000
    assert len(small["ids"]) < BALANCED[1] - 10
    await play(30, model=MODEL)
    assert len((await play(1, memory={"level": "key_events"}))["ids"]) == KEY_EVENTS[1]
    assert len((await play(40, memory={"level": "detailed"}))["ids"]) == 80
    # Discord is always balanced
    discord = {"id": "w", "surface": "discord", "characters": ["mira"]}
    assert len((await play(1, chat=discord, memory={"level": "detailed"}))["ids"]) == BALANCED[1]
    # the newest turn stays, even alone over the bound
    huge = await play(1, said="over and over again {n} " * 3_000)
    assert huge["ids"] == [f"m{2 * number - 2}", f"m{2 * number - 1}"]
    assert huge["tokens"] > BALANCED[0]
    memory = await summarised(frontend, "w")
    assert memory["live"]["count"] == 2
    await _stop(running)


@pytest.mark.rule("S6")
async def test_an_edit_is_kept_and_later_merges_use_it(running: Up) -> None:
    frontend = running.frontend
    await frontend.post([turn(number, "e") for number in range(30)])
    await frontend.applied(30, "e")
    memory = await summarised(frontend, "e")
    recent = next(tier for tier in memory["tiers"] if tier["tier"] == "recent")["summaries"]
    first = recent[0]
    path = f"/v1/chats/e/summaries/{first['id']}"
    text = f"{first['text']}\nIda hid the spare key under the blue pot."
    edited = await frontend.http.patch(
        path, json={"text": text}, headers={"If-Match": f'"{first["version"]}"'}
    )
    assert edited.status_code == 200, edited.text
    assert edited.json()["version"] == first["version"] + 1
    late = await frontend.http.patch(
        path, json={"text": "lost"}, headers={"If-Match": f'"{first["version"]}"'}
    )
    assert late.status_code == 412
    await frontend.post([turn(number, "e") for number in range(30, 50)])
    await frontend.applied(50, "e")
    memory = await summarised(frontend, "e")
    merged = next(tier for tier in memory["tiers"] if tier["tier"] == "merged")["summaries"]
    assert len(merged) == 1
    assert first["id"] in merged[0]["provenance"]["source_ids"]
    assert "blue pot" in merged[0]["text"]
    gone = await frontend.http.patch(path, json={"text": "late"}, headers={"If-Match": '"2"'})
    assert gone.status_code == 410
    await _stop(running)


@pytest.mark.rule("F1", "C2")
async def test_repeats_change_nothing_and_what_is_wrong_is_a_dead_letter(
    running: Up, broker: Broker, tmp_path: Path
) -> None:
    frontend, sent = running.frontend, dict[str, str]()
    turns = [turn(number, "d") for number in range(12)]
    other = {**turns[3], "id": "other", "messages": [{"id": "m6", "role": "user", "text": "something else"}]}
    renamed = {**turns[4], "id": "renamed"}
    unknown = {"type": "message.deleted", "id": "gone", "chat": {"id": "d"}, "message": {"id": "nobody"}}
    untyped = {**unknown, "type": "message.shouted"}
    await publish(broker.bootstrap, turns[:8], sent)
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
    await producer.start()
    for event in (turns[2], renamed, other, unknown):
        await producer.send_and_wait("chat.turns.v1", key=b"d", value=json.dumps(event).encode())
    await producer.stop()
    refused = await frontend.http.post("/v1/turns", json=[untyped, turns[8], {**turns[9], "turn": {}}])
    assert [item["status"] for item in refused.json()["items"]] == ["invalid", "accepted", "invalid"]
    await frontend.applied(9, "d")
    context = await frontend.context("d")
    assert context is not None
    assert verbatim(context) == texts(turns[:9])
    await _stop(running)
    letters = (await journal.read(broker.bootstrap))["chat.turns.v1.window.dlq"]
    reasons = [letter.headers["afterturn-reason"] for letter in letters]
    assert [letter.event["id"] for letter in letters] == ["other", "gone"]
    assert reasons[0].startswith("turn.id: ")
    assert reasons[1] == "message.id: this chat has no message nobody"
    booked = await asyncio.to_thread(ledger.read, tmp_path / "data" / "clickhouse")
    assert booked.replies == 9
