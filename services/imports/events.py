"""From a turn of an import to the event on `chat.turns.v1`."""

from __future__ import annotations

from schemas.chat import ChatRef, UserRef
from schemas.turns import Message, ModelRef, TurnRecorded, TurnRef
from services.imports.policy import Turn
from services.imports.port import ChatStart
from services.state import ids


def event(chat: ChatStart, turn: Turn, user: str | None) -> TurnRecorded:
    """All ids follow from the chat and the places of the messages in it, so that every import gives the same ones.

    Raises pydantic.ValidationError where the source has one message id twice in a turn.
    """
    first, last = turn.messages[0], turn.messages[-1]
    times = [message.at for message in turn.messages if message.at]
    models = [message.model for message in turn.messages if message.model]
    return TurnRecorded(
        # the end is part of it: a turn that has grown since the last import is another event, not a repeat
        id=ids.derive("import-event", chat.id, first.key, last.key),
        at=times[-1] if times else None,
        chat=ChatRef(id=chat.id, surface=chat.surface, characters=chat.characters),
        user=UserRef(id=user) if user else None,
        turn=TurnRef(id=ids.derive("import-turn", chat.id, first.key)),
        messages=tuple(
            Message(
                id=ids.derive("import-message", chat.id, message.key),
                role=message.role,
                author=message.author,
                text=message.text,
            )
            for message in turn.messages
        ),
        model=ModelRef(name=models[-1]) if models else None,
    )
