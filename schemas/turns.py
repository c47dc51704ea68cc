"""Events on `chat.turns.v1`: everything that happens to the messages of a chat, in order, key = chat id."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, TypeAdapter, model_validator

from schemas import limits
from schemas.base import Id, Model, Timestamp, Tokens
from schemas.chat import ChatRef, Level, UserRef


class Role(StrEnum):
    """Who a message speaks for, in the sense of the chat completion APIs."""

    user = "user"
    assistant = "assistant"
    system = "system"
    tool = "tool"


def _fits(text: str) -> str:
    # a character has at most 4 bytes: most texts need no encoding to know that they fit
    if len(text) * 4 > limits.MESSAGE_BYTES:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            raise ValueError("is not valid Unicode (a lone surrogate)") from None
        if size > limits.MESSAGE_BYTES:
            raise ValueError(f"has {size} bytes, the limit is {limits.MESSAGE_BYTES}")
    return text


MessageText = Annotated[
    str,
    AfterValidator(_fits),
    Field(
        description=f"At most {limits.MESSAGE_BYTES} bytes as UTF-8.",
        # for readers of the JSON Schema, which cannot count bytes: so many characters never fit
        json_schema_extra={"maxLength": limits.MESSAGE_BYTES},
    ),
]


class Message(Model):
    """One message. `author` is the id or name of who speaks; by default the role."""

    id: Id = Field(description="Unique in the chat.")
    role: Role = Field(description="Who speaks.")
    author: str = Field(
        default="",
        max_length=limits.ID_CHARACTERS,
        description="Id or name of who speaks; by default the role.",
    )
    text: MessageText


def _some(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    if not messages:
        raise ValueError("has no message")
    return messages


Messages = Annotated[
    tuple[Message, ...],
    # no min_length: after a wrong first message it would say that there is none
    Field(
        max_length=limits.MESSAGES_PER_TURN,
        fail_fast=True,
        description="In the order they were said.",
        json_schema_extra={"minItems": 1},
    ),
    AfterValidator(_some),
]


class TurnRef(Model):
    """A turn: what the user sent and what was answered, complete."""

    id: Id = Field(description="Unique in the chat.")


class ModelRef(Model):
    """The model that wrote the reply. `context_window` is in tokens."""

    name: str = Field(
        min_length=1, max_length=limits.NAME_CHARACTERS, description="As in the price table; books the usage."
    )
    context_window: int | None = Field(
        default=None,
        gt=0,
        le=limits.CONTEXT_WINDOW_TOKENS,
        description="Tokens; a quarter of it bounds the window. Without it the model is no bound.",
    )
    tools: bool = Field(default=True, description="Whether the model can call tools.")


class TokenUsage(Model):
    """Tokens that the reply cost, as the model's API reported them."""

    prompt_tokens: Tokens = Field(default=0, description="Tokens read.")
    completion_tokens: Tokens = Field(default=0, description="Tokens written.")


class MemoryHints(Model):
    """The user's memory detail, and the reply's operations on saved memories."""

    level: Level | None = Field(
        default=None, description="Counts from this turn on; without it the chat keeps its own."
    )
    ops: tuple[dict[str, Any], ...] = Field(
        default=(),
        max_length=limits.MEMORY_OPS,
        fail_fast=True,
        description="What the character saved, changed or deleted in its memories during the reply, in order.",
    )


class Envelope(Model):
    """Common to all events. The same `id` sent twice changes nothing."""

    id: Id = Field(description="Unique in the chat. The same id sent twice changes nothing.")
    at: Timestamp | None = Field(
        default=None, description="When it happened; by default the record's timestamp."
    )
    chat: ChatRef
    user: UserRef | None = None


class FinishedTurn(Envelope):
    """What a turn consists of."""

    turn: TurnRef
    messages: Messages
    model: ModelRef | None = None
    usage: TokenUsage | None = None
    memory: MemoryHints = MemoryHints()

    @model_validator(mode="after")
    def _distinct(self) -> Self:
        if len({message.id for message in self.messages}) != len(self.messages):
            raise ValueError("messages: two messages have the same id")
        return self


class TurnRecorded(FinishedTurn):
    """A finished turn. The same turn id with the same messages changes nothing, with others it is refused."""

    type: Literal["turn.recorded"] = "turn.recorded"


class TurnRegenerated(FinishedTurn):
    """The chat's last turn is replaced: `messages` are all of it, what the user said included."""

    type: Literal["turn.regenerated"] = "turn.regenerated"


class ChatRewound(Envelope):
    """Every turn after this one is taken back; without a turn, every turn of the chat."""

    type: Literal["chat.rewound"] = "chat.rewound"
    turn: TurnRef | None = Field(default=None, description="The last turn that stays; null: none does.")


class EditedMessage(Model):
    """A message by its id, and its new text."""

    id: Id
    text: MessageText


class MessageEdited(Envelope):
    """A message says something else from now on. Its role and author stay."""

    type: Literal["message.edited"] = "message.edited"
    message: EditedMessage


class MessageRef(Model):
    """A message by its id."""

    id: Id


class MessageDeleted(Envelope):
    """A message is gone."""

    type: Literal["message.deleted"] = "message.deleted"
    message: MessageRef


class ForkPoint(Model):
    """Where a fork starts: the chat and its last turn that the fork keeps."""

    chat: Id
    turn: Id


class ChatForked(Envelope):
    """`chat` is the new chat; it begins as a copy of another one up to a turn."""

    type: Literal["chat.forked"] = "chat.forked"
    source: ForkPoint


class ChatDeleted(Envelope):
    """The chat and everything derived from it is to go. Its id is not used again."""

    type: Literal["chat.deleted"] = "chat.deleted"
    forget_memories: bool = Field(
        default=False, description="Whether what its turns have saved in memories goes as well."
    )


TurnEvent = Annotated[
    TurnRecorded | TurnRegenerated | ChatRewound | MessageEdited | MessageDeleted | ChatForked | ChatDeleted,
    Field(discriminator="type"),
]

TURN_EVENT: TypeAdapter[TurnEvent] = TypeAdapter(TurnEvent)
"""Validates one event of `chat.turns.v1`, told apart by `type`."""
