"""The end of the demo: a pin, a reply that is thought better of, and a fork."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import httpx

from schemas.chat import UserRef
from schemas.delivery import Outgoing, Topics
from schemas.turns import (
    ChatForked,
    Envelope,
    ForkPoint,
    MemoryHints,
    Message,
    TurnRecorded,
    TurnRegenerated,
)
from services.state import ids
from streams.demo.conversation import CHAT, USER

FORK = "demo-mira-2"
FORK_AT = 0.9
"""Where the fork begins: this share of the turns."""

SAVED_IN_HASTE = {"op": "save", "text": "Theo sells the Heron in October and moves into Mira's house."}
"""What the reply that is taken back has made up."""

Say = Callable[[str, str], None]
Publish = Callable[[Envelope], Awaitable[None]]
"""Publishes an event and returns when all agents have handled what came of it."""


def record(event: Envelope) -> Outgoing:
    """The event as a frontend publishes it."""
    return Outgoing(Topics.TURNS, event.chat.id.encode(), event.model_dump_json(exclude_none=True).encode())


def hasty(last: TurnRecorded) -> TurnRecorded:
    """One more turn, with a memory that nobody told."""
    asked, answered = (
        Message(id=ids.derive("demo-hasty", CHAT, role), role=message.role, author=message.author, text=text)
        for message, (role, text) in zip(
            last.messages,
            (
                ("asked", "and after the winter? what do we do with the boat?"),
                ("answered", '"We sell her in October, and you move in with me. I\'ve already told Bertil."'),
            ),
            strict=True,
        )
    )
    assert last.at is not None
    return last.model_copy(
        update={
            "id": ids.derive("demo-hasty", CHAT, "event"),
            "at": last.at + timedelta(minutes=4),
            "turn": last.turn.model_copy(update={"id": ids.derive("demo-hasty", CHAT, "turn")}),
            "messages": (asked, answered),
            "memory": MemoryHints(ops=(SAVED_IN_HASTE,)),
        }
    )


def regenerated(turn: TurnRecorded) -> TurnRegenerated:
    """The same turn with another reply, which saves nothing."""
    asked, answered = turn.messages
    reply = answered.model_copy(
        update={
            "id": ids.derive("demo-hasty", CHAT, "again"),
            "text": '"After the winter we take her out again, further each year. Nobody sells a boat that has just '
            'learned to float."',
        }
    )
    return TurnRegenerated(
        id=ids.derive("demo-hasty", CHAT, "regenerated"),
        at=turn.at,
        chat=turn.chat,
        user=turn.user,
        turn=turn.turn,
        messages=(asked, reply),
        model=turn.model,
        usage=turn.usage,
    )


def forked(turn: TurnRecorded) -> ChatForked:
    """Another chat that begins after `turn`."""
    return ChatForked(
        id=ids.derive("demo-fork", CHAT),
        at=turn.at,
        chat=turn.chat.model_copy(update={"id": FORK}),
        user=UserRef(id=USER),
        source=ForkPoint(chat=CHAT, turn=turn.turn.id),
    )


async def play(
    http: httpx.AsyncClient, events: list[TurnRecorded], publish: Publish, say: Say
) -> dict[str, Any]:
    """What was pinned, what the reply that was taken back had saved, and the fork, as JSON."""
    memories = await _memories(http)
    pin = next(memory for memory in memories if memory["id"] == "mem-heron")
    answer = await http.patch(f"/v1/users/{USER}/memories/{pin['id']}", json={"pinned": True})
    answer.raise_for_status()
    say("frontend", f"pins: {pin['text']}")

    turn = hasty(events[-1])
    say("frontend", "publishes one more turn, in which the character saves something that nobody said")
    await publish(turn)
    before = await _memories(http)
    say("memories", f"{len(before)} saved memories, one of them made up")
    say("frontend", "regenerates the reply")
    await publish(regenerated(turn))
    after = await _memories(http)
    say("memories", f"{len(after)} saved memories: what the reply had saved is taken back")

    at = int(len(events) * FORK_AT)
    say("frontend", f"forks the chat after turn {at + 1}")
    await publish(forked(events[at]))
    fork = (await http.get(f"/v1/chats/{FORK}/context")).raise_for_status().json()
    say("window", f"the fork has a context of {fork['totals']['tokens']:,} tokens, without a new summary")
    return {
        "memories": after,
        "pinned": [memory["id"] for memory in after if memory["pinned"]],
        "regenerated": {
            "saved": [m["id"] for m in before if m["id"] not in {kept["id"] for kept in memories}],
            "taken_back": [m["id"] for m in before if m["id"] not in {kept["id"] for kept in after}],
        },
        "fork": {
            "chat": FORK,
            "turns": at + 1,
            "messages": fork["totals"]["messages"],
            "summaries": fork["totals"]["summaries"],
            "tokens": fork["totals"]["tokens"],
        },
    }


async def _memories(http: httpx.AsyncClient) -> list[dict[str, Any]]:
    answer = (await http.get(f"/v1/users/{USER}/memories")).raise_for_status().json()
    memories: list[dict[str, Any]] = answer["memories"]
    return memories
