"""What a chat that is taken back commands to be taken back from its users' saved memories (M9). Pure."""

from __future__ import annotations

from schemas.memories import MemoryRollback
from schemas.turns import ChatDeleted, ChatRewound, TurnEvent
from services.state import ids
from services.takeback.policy import Plan
from services.window.incoming import Delivered, happened

ROLLBACK_TURNS = 1_000
"""Most turns in one rollback of memories: with the longest ids it has less than schemas.limits.EVENT_BYTES."""


def rollbacks(delivered: Delivered, plan: Plan, messages: tuple[str, ...] | None) -> list[MemoryRollback]:
    """For each user in whose memories the turns have written (M9), in the order in which they take effect: the newest
    turns first. One command where all of the chat goes, else one for every so many turns."""
    event = delivered.event
    commands = []
    for user, turns in plan.memory.items():
        slices: list[tuple[str, ...] | None] = [None]
        if not _everything(event):
            starts = range(0, len(turns), ROLLBACK_TURNS)
            slices = [tuple(turns[start : start + ROLLBACK_TURNS]) for start in reversed(starts)]
        for number, part in enumerate(slices):
            commands.append(
                MemoryRollback(
                    id=ids.derive("memory.rollback", event.chat.id, event.id, user, number),
                    at=happened(event, delivered.timestamp),
                    user_id=user,
                    chat_id=event.chat.id,
                    generation=plan.generation,
                    turns=part,
                    messages=messages,
                )
            )
    return commands


def _everything(event: TurnEvent) -> bool:
    """Whether no turn of the chat stays."""
    return isinstance(event, ChatDeleted) or (isinstance(event, ChatRewound) and event.turn is None)
