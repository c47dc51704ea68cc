"""An event as it came from the log, and what follows from it alone: its time, the reply's usage, its memory command."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic_core import to_json

from schemas.delivery import Outgoing, Position, Topics
from schemas.memories import Author, MemoryOps, Source
from schemas.turns import Envelope, FinishedTurn, Role, TurnEvent
from schemas.usage import Stage
from services.state import ids, outbox
from services.window.policy import may_save

_REPLY = Stage.reply.value


class Delivered(NamedTuple):
    """An event and where it was read. `timestamp` is the record's, in milliseconds."""

    event: TurnEvent
    position: Position
    timestamp: int


def happened(event: Envelope, timestamp: int) -> datetime:
    """When the event says, else when it was written to the log."""
    return event.at or datetime.fromtimestamp(timestamp / 1000, UTC)


def memory_field(position: Position, step: str, id: str) -> str:
    """The outbox field of a memory command. Fields sort in the order in which commands take effect: by the event, and
    within one first what is taken back (steps that begin with 0), then what is written (1)."""
    return f"{position.offset:016d}/{step}/{id}/memory"


def in_order(fields: Iterable[bytes]) -> list[bytes]:
    """Outbox fields in the order to publish them: chunks as they closed, then memory commands as they take effect."""
    return sorted(fields, key=lambda field: field if field.endswith(b"/memory") else b"")


def memory_entry(event: FinishedTurn, position: Position, at: datetime) -> tuple[str, str] | None:
    """Outbox field and entry of what the reply did to its user's memories; None for nothing, or where it may not."""
    if not event.memory.ops or event.user is None or not may_save(event):
        return None
    chat = event.chat
    command = MemoryOps(
        id=ids.derive("memory.ops", chat.id, event.turn.id, event.id),
        at=at,
        user_id=event.user.id,
        by=Author.character,
        character=_writer(event),
        characters=chat.characters,
        source=Source(chat=chat.id, turn=event.turn.id),
        ops=event.memory.ops,
    )
    return memory_field(position, "1", command.id), outbox.entry(
        Topics.MEMORY_COMMANDS, event.user.id, command
    )


def _writer(event: FinishedTurn) -> str | None:
    """The character that wrote the reply: the author of the last answer where it is one of the chat's, else the first."""
    characters = event.chat.characters
    for message in reversed(event.messages):
        if message.role is Role.assistant and message.author in characters:
            return message.author
    return characters[0] if characters else None


def usage(event: FinishedTurn, content: str, at_ms: int) -> tuple[Outgoing, ...]:
    """The reply's usage, once per reply (C1): the id and the time are the turn's, whatever event brings it.

    The turn's id is not enough: it is free again when the turn was taken back, and the next reply is another one.
    `content` is the turn's digest (services.window.store.digest).
    """
    if event.usage is None:
        return ()
    chat, user = event.chat, event.user.id if event.user else None
    # written by hand: the model's own way costs ten times as much; tests/unit/test_window_usage.py holds both together
    booked = {
        "type": "usage.booked",
        "id": ids.derive("usage", _REPLY, chat.id, event.turn.id, content),
        "at": datetime.fromtimestamp(at_ms / 1000, UTC),
        "chat_id": chat.id,
        "model": event.model.name if event.model else "unknown",
        "stage": _REPLY,
        "tokens_in": event.usage.prompt_tokens,
        "tokens_out": event.usage.completion_tokens,
    }
    if user is not None:
        booked["user_id"] = user
    if chat.characters:
        booked["character"] = chat.characters[0]
    return (Outgoing(Topics.USAGE, (user or chat.id).encode(), to_json(booked)),)
