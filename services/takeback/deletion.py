"""Deleting a chat: its keys go, and a mark stays that says so. Tombstones tell the topics' readers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemas.delivery import Topics, dead_letters
from schemas.turns import ChatDeleted
from services.state import keys, outbox
from services.state.agents import MERGE, SUMMARISE
from services.state.agents import WINDOW as AGENT
from services.state.deleted import MARK
from services.takeback.policy import Plan
from services.takeback.reading import Ask, table
from services.takeback.values import Chat

_READERS = ((Topics.TURNS, AGENT), (Topics.CHUNKS, SUMMARISE), (Topics.SUMMARIES, MERGE))

TOPICS = tuple(name for topic, agent in _READERS for name in (topic, dead_letters(topic, agent)))
"""Where records have the chat as their key: topics, and the dead letters of their readers."""

_OTHERS = (SUMMARISE, MERGE)


async def plan(ask: Ask, chat: Chat, event: ChatDeleted) -> Plan:
    """What is left tells that the chat was deleted, and what is still to be published: what was used up to now is
    booked all the same (C1).

    Of the other agents' outboxes only what was read goes. What a use of the model has cost is noted there at any
    time; it is published with the tombstone (services.summaries.service).
    """
    k = keys.ChatKeys.of(chat.id)
    boxes = [keys.outbox(chat.id, agent) for agent in _OTHERS]
    users, *answers = await ask([("HGETALL", k.memory_users), *(("HGETALL", box) for box in boxes)])
    held = [table(answer) for answer in answers]
    plan = Plan(generation=chat.number("g") + 1, version=chat.number("v") + 1)
    if event.forget_memories:
        for turn, user in table(users).items():
            plan.memory.setdefault(user.decode(), []).append(turn.decode())
    for key in k:
        plan.changes.forget(key)
    for box, entries in zip(boxes, held, strict=True):
        plan.changes.drop(box, entries)
    plan.changes.set(k.window, {MARK: event.id, "g": plan.generation, "v": plan.version})
    plan.changes.set(keys.outbox(chat.id, AGENT), _announcements(chat.id, held))
    return plan


def _announcements(chat: str, boxes: Iterable[Mapping[bytes, bytes]]) -> dict[bytes, bytes]:
    entries = {
        field: value
        for box in boxes
        for field, value in box.items()
        if outbox.outgoing([value])[0].topic == Topics.USAGE
    }
    for topic in TOPICS:
        entries[f"tombstone/{topic}".encode()] = outbox.tombstone(topic, chat).encode()
    return entries
