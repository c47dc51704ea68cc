"""What a run publishes: turns of many chats in a random order, repeats of them, and records that are wrong.

Everything follows from the seed. What has to be there at the end is known from here alone.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

TURNS, CHUNKS, SUMMARIES, USAGE = "chat.turns.v1", "chat.chunks.v1", "chat.summaries.v1", "credits.usage.v1"

START = datetime(2026, 11, 30, 10, tzinfo=UTC)
REPLY_MODEL = "reply-model"
PRICES = """\
default:
  - {input: "0.001", output: "0.004"}
models:
  reply-model:
    - {input: "0.000301", output: "0.001207"}
"""
"""The price table of a run. All its numbers are exact in six places."""

PRICE = {"reply-model": (Decimal("0.000301"), Decimal("0.001207"))}
DEFAULT_PRICE = (Decimal("0.001"), Decimal("0.004"))

_SAID = (
    "the ferry leaves at seven and costs nine crowns",
    "Der Leuchtturm blinkt alle zwölf Sekunden, vergiss das nicht",
    "เรือออกเวลาเจ็ดโมงเช้า อย่าลืมนะ",
    'she said "stay" \\ and then: {"n": 1}\nnext line',
    "🚢 ⚓ ok",
)


class Planned(NamedTuple):
    """One record to publish. `reason` begins the reason of its dead letter; None: it is no poison."""

    topic: str
    key: bytes
    value: bytes
    kind: str
    reason: str | None = None


@dataclass(frozen=True)
class Load:
    """`messages` has (id, text) of every chat in order; `replies` the uses of the load by (chat, turn): tokens in, out."""

    records: list[Planned]
    messages: dict[str, list[tuple[str, str]]]
    replies: dict[tuple[str, str], tuple[int, int]]
    kinds: dict[str, int] = field(default_factory=dict)

    @property
    def poison(self) -> list[Planned]:
        """The records that belong in the dead letters."""
        return [record for record in self.records if record.reason is not None]


def turn(chat: str, number: int, dice: random.Random) -> dict[str, Any]:
    """A turn of two messages as a frontend writes it. The texts name the chat, so that a model's call can be told apart."""
    said, answered = dice.choice(_SAID), dice.choice(_SAID)
    event: dict[str, Any] = {
        "type": "turn.recorded",
        "id": f"{chat}-e{number}",
        "at": (START + timedelta(minutes=number)).isoformat(),
        "chat": {"id": chat, "surface": dice.choice(["web", "api"]), "characters": ["mira"]},
        "turn": {"id": f"t{number}"},
        "messages": [
            {"id": f"u{number}", "role": "user", "author": "ida", "text": f"{chat} {number}: {said}"},
            {
                "id": f"a{number}",
                "role": "assistant",
                "author": "mira",
                "text": f"{chat} {number}: {answered}",
            },
        ],
        "model": {"name": REPLY_MODEL, "context_window": 65_536},
        "usage": {"prompt_tokens": dice.randint(1, 9_000), "completion_tokens": dice.randint(1, 900)},
    }
    if not chat.endswith("7"):  # those are signed out
        event["user"] = {"id": f"user-{chat[-2:]}"}
    if number == 0:
        event["memory"] = {"level": "key_events" if int(chat[1:]) % 2 else "balanced"}
    return event


def plan(seed: int, chats: int, turns: int, poison: int) -> Load:
    """Every chat's turns in order, the chats mixed; one record in nine is a repeat, `poison` records are wrong."""
    dice = random.Random(seed)
    names = [f"c{number:03d}" for number in range(chats)]
    order = [name for name in names for _ in range(turns)]
    dice.shuffle(order)
    load = Load([], {name: [] for name in names}, {})
    sent: list[dict[str, Any]] = []
    wrong = _poisons(dice)
    poisoned = set(dice.sample(range(chats, len(order)), poison))
    for place, name in enumerate(order):
        number = len(load.messages[name]) // 2
        event = turn(name, number, dice)
        load.messages[name] += [(message["id"], message["text"]) for message in event["messages"]]
        usage = event["usage"]
        load.replies[name, event["turn"]["id"]] = (usage["prompt_tokens"], usage["completion_tokens"])
        load.records.append(_record(event, "turn"))
        sent.append(event)
        if dice.random() < 0.12:
            load.records.append(_repeat(dice, sent))
        if place in poisoned:
            # every kind comes, the rest by chance
            make = wrong.pop() if wrong else dice.choice(_poisons(dice))
            load.records.append(make(f"poison-{place}", dice.choice(sent)))
    for record in load.records:
        load.kinds[record.kind] = load.kinds.get(record.kind, 0) + 1
    return load


def _record(event: dict[str, Any], kind: str, reason: str | None = None, key: str | None = None) -> Planned:
    value = json.dumps(event, ensure_ascii=False).encode()
    return Planned(TURNS, (key or event["chat"]["id"]).encode(), value, kind, reason)


def _repeat(dice: random.Random, sent: list[dict[str, Any]]) -> Planned:
    """Something that changes nothing: recent for the most part, so that it meets what is still in flight."""
    event = dice.choice(sent[-50:] if dice.random() < 0.7 else sent)
    number = f"{dice.getrandbits(48):x}"
    match dice.choice(["same event", "same event", "same turn", "same id"]):
        case "same event":
            return _record(event, "same event again")
        case "same turn":
            return _record({**event, "id": f"again-{number}"}, "same turn under a new event id")
        case _:
            other = {**event, "turn": {"id": f"t-{number}"}, "usage": {"prompt_tokens": 10**6}}
            other["messages"] = [{"id": f"m-{number}", "role": "user", "text": "another turn"}]
            return _record(other, "another turn under a used event id")


Make = Callable[[str, dict[str, Any]], Planned]


def _poisons(dice: random.Random) -> list[Make]:
    """One maker per kind, in a random order: from a unique name and an event that was sent before to a wrong record."""

    def conflict(name: str, sent: dict[str, Any]) -> Planned:
        first, *rest = sent["messages"]
        changed = [{**first, "text": f"{first['text']} ({name})"}, *rest]
        reason = "turn.id: a turn with this id was recorded with other"
        return _record({**sent, "id": name, "messages": changed}, "conflicting turn", reason)

    def taken(name: str, sent: dict[str, Any]) -> Planned:
        message = sent["messages"][0]
        reason = f"messages: the id {message['id']} belongs to a message of an earlier turn"
        event = {**sent, "id": name, "turn": {"id": name}, "messages": [message]}
        return _record(event, "message id of an earlier turn", reason)

    def broken(name: str, sent: dict[str, Any]) -> Planned:
        value = json.dumps({**sent, "id": name}).encode()[:-7]
        return Planned(TURNS, sent["chat"]["id"].encode(), value, "broken JSON", "value: Invalid JSON")

    def missing(name: str, sent: dict[str, Any]) -> Planned:
        event = {**sent, "id": name}
        del event["messages"]
        return _record(event, "missing field", "messages: Field required")

    def other_key(name: str, sent: dict[str, Any]) -> Planned:
        event = {**sent, "id": name, "turn": {"id": name}}
        return _record(
            event, "other key", "key: is not the chat.id of the event", key=f"not-{sent['chat']['id']}"
        )

    def unsupported(name: str, sent: dict[str, Any]) -> Planned:
        event = {"type": "message.deleted", "id": name, "chat": sent["chat"], "message": {"id": "u0"}}
        return _record(event, "unsupported type", "type: message.deleted is not supported yet")

    def bad_chunk(name: str, sent: dict[str, Any]) -> Planned:
        value = json.dumps({"type": "chunk.closed", "id": name, "chat": sent["chat"]}).encode()
        return Planned(
            CHUNKS, sent["chat"]["id"].encode(), value, "chunk without fields", "at: Field required"
        )

    def bad_summary(name: str, sent: dict[str, Any]) -> Planned:
        key = sent["chat"]["id"].encode()
        return Planned(
            SUMMARIES, key, f"{name}\x00".encode(), "summary that is no JSON", "value: Invalid JSON"
        )

    def bad_usage(name: str, sent: dict[str, Any]) -> Planned:
        use = {"id": name, "at": sent["at"], "chat_id": sent["chat"]["id"], "model": "m", "stage": "reply"}
        value = json.dumps({**use, "tokens_in": -5, "tokens_out": 1}).encode()
        return Planned(USAGE, b"someone", value, "negative usage", "tokens_in: ")

    makers: list[Make] = [
        *(conflict, taken, broken, missing, other_key, unsupported),
        *(bad_chunk, bad_summary, bad_usage),
    ]
    dice.shuffle(makers)
    return makers
