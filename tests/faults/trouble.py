"""Records that change nothing (repeats) or are wrong (poison, with the reason of its dead letter)."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tests.faults.story import Story

TURNS, CHUNKS, SUMMARIES, USAGE = "chat.turns.v1", "chat.chunks.v1", "chat.summaries.v1", "credits.usage.v1"
COMMANDS, CHANGES = "memory.commands.v1", "memory.changes.v1"

Event = dict[str, Any]


class Planned(NamedTuple):
    """One record to publish. `reason` begins the reason of its dead letter; None: it is no poison. The dead letter has
    the record's bytes, or none where they are not `kept`."""

    topic: str
    key: bytes
    value: bytes
    kind: str
    reason: str | None = None
    kept: bool = True


def record(event: Event, kind: str, reason: str | None = None, key: str | None = None) -> Planned:
    """An event of a chat."""
    return Planned(TURNS, (key or event["chat"]["id"]).encode(), _json(event), kind, reason)


def command(event: Event, kind: str, reason: str | None = None, key: str | None = None) -> Planned:
    """A command on memories."""
    return Planned(COMMANDS, (key or event["user_id"]).encode(), _json(event), kind, reason)


def _json(event: Event) -> bytes:
    return json.dumps(event, ensure_ascii=False).encode()


def repeat(dice: random.Random, sent: Sequence[Planned], stories: Sequence[Story]) -> Planned:
    """Something that changes nothing: recent for the most part, so that it meets what is still in flight. `sent` is of
    chats that are there, `stories` are chats with turns."""
    number = f"{dice.getrandbits(48):x}"
    match dice.choice(["same event", "same event", "same turn", "same id"]):
        case "same event":
            again = dice.choice(sent[-50:] if dice.random() < 0.7 else sent)
            what = "command" if again.topic == COMMANDS else "event"
            return again._replace(kind=f"same {what} again")
        case "same turn":
            for _ in range(20):
                turn = dice.choice(dice.choice(stories).turns)
                event = turn.event
                if event["type"] == "turn.recorded" and _as_sent(turn.messages, event):
                    return record({**event, "id": f"again-{number}"}, "same turn under a new event id")
            return repeat(dice, sent, stories)
        case _:
            story = dice.choice(stories)
            event = dice.choice(story.turns).event
            other = {**event, "turn": {"id": f"t-{number}"}, "usage": {"prompt_tokens": 10**6}}
            other["messages"] = [{"id": f"m-{number}", "role": "user", "text": "another turn"}]
            return record(other, "another turn under a used event id")


def _as_sent(messages: list[tuple[str, str | None]], event: Event) -> bool:
    return messages == [(message["id"], message["text"]) for message in event["messages"]]


Make = Callable[[str, Story], Planned]


def poisons(dice: random.Random) -> list[Make]:
    """One maker per kind, in a random order: from a unique name and a chat with a few turns to a wrong record."""
    makers: list[Make] = [
        *(conflict, taken, broken, missing, other_key, unknown_type, bad_chunk, bad_summary, bad_usage),
        *(nowhere, not_the_last, nothing_to_edit, fork_onto_a_chat, no_operations, others_memories),
    ]
    dice.shuffle(makers)
    return makers


def _said(story: Story, name: str) -> Event:
    """A turn that the chat has, under a new event id."""
    turn = story.turns[-1]
    chat = {**turn.event["chat"], "id": story.name}
    return {**turn.event, "type": "turn.recorded", "id": name, "chat": chat}


def _takes_back(story: Story, name: str, type: str, **fields: Any) -> Event:
    event = _said(story, name)
    kept = {field: event[field] for field in ("id", "at", "chat", "user") if field in event}
    return {**kept, "type": type, **fields}


def conflict(name: str, story: Story) -> Planned:
    event = _said(story, name)
    first, *rest = event["messages"]
    event["messages"] = [{**first, "text": f"{name} is another text"}, *rest]
    reason = "turn.id: a turn with this id was recorded with other"
    return record(event, "conflicting turn", reason)


def taken(name: str, story: Story) -> Planned:
    message, _ = story.turns[0].messages[0]
    event = _said(story, name) | {"turn": {"id": name}}
    event["messages"] = [{"id": message, "role": "user", "text": name}]
    reason = f"messages: the id {message} belongs to a message of an earlier turn"
    return record(event, "message id of an earlier turn", reason)


def broken(name: str, story: Story) -> Planned:
    value = json.dumps(_said(story, name)).encode()[:-7]
    return Planned(TURNS, story.name.encode(), value, "broken JSON", "value: Invalid JSON")


def missing(name: str, story: Story) -> Planned:
    event = _said(story, name)
    del event["messages"]
    return record(event, "missing field", "messages: Field required")


def other_key(name: str, story: Story) -> Planned:
    event = _said(story, name) | {"turn": {"id": name}}
    return record(event, "other key", "key: is not the chat.id of the event", key=f"not-{story.name}")


def unknown_type(name: str, story: Story) -> Planned:
    event = _takes_back(story, name, "turn.forgotten")
    return record(event, "unknown type", "value: type is none of ")


def nowhere(name: str, story: Story) -> Planned:
    event = _takes_back(story, name, "chat.rewound", turn={"id": name})
    return record(event, "rewound to an unknown turn", f"turn.id: this chat has no turn {name}")


def not_the_last(name: str, story: Story) -> Planned:
    event = _said(story, name) | {"type": "turn.regenerated", "turn": {"id": story.turns[-2].id}}
    return record(event, "regenerated before the last turn", "turn.id: is not the chat's last turn")


def nothing_to_edit(name: str, story: Story) -> Planned:
    event = _takes_back(story, name, "message.edited", message={"id": name, "text": name})
    return record(event, "edit of an unknown message", f"message.id: this chat has no message {name}")


def fork_onto_a_chat(name: str, story: Story) -> Planned:
    event = _takes_back(story, name, "chat.forked", source={"chat": story.name, "turn": story.turns[-1].id})
    return record(event, "fork onto a chat", "chat.id: a fork begins a new chat")


def bad_chunk(name: str, story: Story) -> Planned:
    value = _json({"type": "chunk.closed", "id": name, "chat": {"id": story.name}})
    return Planned(CHUNKS, story.name.encode(), value, "chunk without fields", "at: Field required")


def bad_summary(name: str, story: Story) -> Planned:
    value = f"{name}\x00".encode()
    return Planned(SUMMARIES, story.name.encode(), value, "summary that is no JSON", "value: Invalid JSON")


def bad_usage(name: str, story: Story) -> Planned:
    at = story.turns[-1].event["at"]
    use = {"id": name, "at": at, "chat_id": story.name, "model": "m", "stage": "reply"}
    value = _json({**use, "tokens_in": -5, "tokens_out": 1})
    return Planned(USAGE, b"someone", value, "negative usage", "tokens_in: ")


def no_operations(name: str, story: Story) -> Planned:
    event = {"type": "memory.ops", "id": name, "at": story.turns[-1].event["at"], "by": "user"}
    event["user_id"] = story.user or "nobody"
    return command(event, "command without operations", "ops: Field required")


def others_memories(name: str, story: Story) -> Planned:
    event = {"type": "memory.ops", "id": name, "at": story.turns[-1].event["at"], "by": "user", "ops": []}
    event["user_id"] = story.user or "nobody"
    reason = "key: is not the user_id of the event"
    return command(event, "command under another key", reason, key="somebody")


def too_late(dice: random.Random, name: str, old: Story) -> Planned:
    """A turn of a chat that was deleted: what it says is not kept in the dead letters either."""
    event = old.record(dice, [])
    late = record({**event, "id": name}, "turn of a deleted chat", "chat.id: this chat was deleted")
    return late._replace(kept=False)
