"""Which events there are, on which topic, with which key, and one example of each."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, NamedTuple

from schemas.base import Model
from schemas.chat import ChatRef, Level, Surface, UserRef
from schemas.chunks import ChunkClosed, Span
from schemas.delivery import Topics
from schemas.memories import (
    Author,
    CharacterDeleted,
    MemoryChanged,
    MemoryClear,
    MemoryOps,
    MemoryRollback,
    MemorySettings,
    OpResult,
    Source,
    Status,
    scope_of,
)
from schemas.summaries import SummarySaved, Tier
from schemas.turns import (
    ChatDeleted,
    ChatForked,
    ChatRewound,
    EditedMessage,
    ForkPoint,
    MemoryHints,
    Message,
    MessageDeleted,
    MessageEdited,
    MessageRef,
    ModelRef,
    Role,
    TokenUsage,
    TurnRecorded,
    TurnRef,
    TurnRegenerated,
)
from schemas.usage import Stage, UsageBooked


class Event(NamedTuple):
    """An event, and an example of it."""

    model: type[Model]
    example: Model

    @property
    def type(self) -> str:
        """The value of its field `type`."""
        return str(self.model.model_fields["type"].default)

    @property
    def value(self) -> dict[str, Any]:
        """The example as JSON, `type` first."""
        return {"type": self.type, **self.example.model_dump(mode="json", exclude_none=True)}


class Topic(NamedTuple):
    """`agent` reads the topic; `written_by` tells who writes it; `key` is the meaning of the record key."""

    name: str
    title: str
    description: str
    key: str
    agent: str
    written_by: str
    events: tuple[Event, ...]


_CHAT = ChatRef(id="c1", surface=Surface.web, characters=("mira",), persona="p1")
_USER = UserRef(id="u1", subscribed=True)
_MODEL = ModelRef(name="deepseek-v3.1", context_window=65_536)
_ASKED = Message(id="m83", role=Role.user, author="u1", text="No, the Heron is 9.2 metres, not 9.5.")
_ANSWERED = Message(id="m84", role=Role.assistant, author="mira", text="Nine point two. I'll remember.")
_SPAN = Span(first_seq=0, last_seq=9, first_message="m1", last_message="m10", messages=10)
_CHUNK = "5d5b5a0e-8f0a-5b53-9b53-2f8f6e1f4d10"


def _at(second: int) -> datetime:
    return datetime(2026, 11, 30, 10, 0, second, tzinfo=UTC)


def _command(number: int) -> dict[str, Any]:
    return {"id": f"k{number}", "at": _at(number), "user_id": "u1"}


def _envelope(number: int) -> dict[str, Any]:
    return {"id": f"e{number}", "at": _at(number), "chat": _CHAT, "user": _USER}


TURN_EVENTS = (
    Event(
        TurnRecorded,
        TurnRecorded(
            **_envelope(1),
            turn=TurnRef(id="t42"),
            messages=(_ASKED, _ANSWERED),
            model=_MODEL,
            usage=TokenUsage(prompt_tokens=8_123, completion_tokens=311),
            memory=MemoryHints(level=Level.balanced),
        ),
    ),
    Event(
        TurnRegenerated,
        TurnRegenerated(
            **_envelope(2),
            turn=TurnRef(id="t42"),
            messages=(_ASKED, Message(id="m85", role=Role.assistant, author="mira", text="9.2, then.")),
            model=_MODEL,
            usage=TokenUsage(prompt_tokens=8_123, completion_tokens=7),
        ),
    ),
    Event(ChatRewound, ChatRewound(**_envelope(3), turn=TurnRef(id="t40"))),
    Event(
        MessageEdited,
        MessageEdited(**_envelope(4), message=EditedMessage(id="m83", text="The Heron is 9.2 metres.")),
    ),
    Event(MessageDeleted, MessageDeleted(**_envelope(5), message=MessageRef(id="m84"))),
    Event(
        ChatForked,
        ChatForked(
            id="e6",
            at=_at(6),
            chat=_CHAT.model_copy(update={"id": "c2"}),
            user=_USER,
            source=ForkPoint(chat="c1", turn="t40"),
        ),
    ),
    Event(ChatDeleted, ChatDeleted(**_envelope(7))),
)

TOPICS: tuple[Topic, ...] = (
    Topic(
        Topics.TURNS,
        "Turns",
        "Everything that happens to the messages of a chat, in order.",
        "The chat's id, the same as `chat.id` of the event.",
        "window",
        "frontends",
        TURN_EVENTS,
    ),
    Topic(
        Topics.CHUNKS,
        "Chunks",
        "Pieces of the history that left the window and want a summary.",
        "The chat's id.",
        "summarise",
        "the window agent",
        (
            Event(
                ChunkClosed,
                ChunkClosed(
                    id=_CHUNK,
                    at=_at(8),
                    chat=_CHAT,
                    user_id="u1",
                    generation=0,
                    index=0,
                    span=_SPAN,
                    tokens=1_480,
                    level=Level.balanced,
                ),
            ),
        ),
    ),
    Topic(
        Topics.SUMMARIES,
        "Summaries",
        "A summary was saved, merged or edited.",
        "The chat's id.",
        "merge",
        "the summarise and merge agents, and the gateway",
        (
            Event(
                SummarySaved,
                SummarySaved(
                    id="0f1d7d0b-6c3e-5f0e-8d1c-4f6f0f2a7b9c",
                    at=_at(9),
                    chat_id="c1",
                    user_id="u1",
                    generation=0,
                    summary_id=_CHUNK,
                    tier=Tier.recent,
                    version=1,
                    span=_SPAN,
                    tokens=214,
                ),
            ),
        ),
    ),
    Topic(
        Topics.USAGE,
        "Usage",
        "What a use of a model cost in tokens; prices are applied when it is booked.",
        "The user's id, or the chat's id when signed out.",
        "credits",
        "every agent that uses a model, and the window agent for replies",
        (
            Event(
                UsageBooked,
                UsageBooked(
                    id="9a0c1f52-3f0b-5d8e-a7a9-0b6f1f0f5c3d",
                    at=_at(9),
                    user_id="u1",
                    chat_id="c1",
                    character="mira",
                    model="deepseek-v3.1",
                    stage=Stage.reply,
                    tokens_in=8_123,
                    tokens_out=311,
                ),
            ),
        ),
    ),
)

MEMORY_COMMANDS = (
    Event(
        MemoryOps,
        MemoryOps(
            **_command(1),
            by=Author.character,
            character="mira",
            characters=("mira",),
            source=Source(chat="c1", turn="t42"),
            ops=({"op": "save", "text": "Theo's boat, the Heron, is 9.2 metres long."},),
        ),
    ),
    Event(MemoryRollback, MemoryRollback(**_command(2), chat_id="c1", generation=1, turns=("t42",))),
    Event(MemoryClear, MemoryClear(**_command(3), scope=scope_of("mira"))),
    Event(MemorySettings, MemorySettings(**_command(4), character="mira", learn_from_chat=False)),
    Event(CharacterDeleted, CharacterDeleted(**_command(5), character="mira")),
)

TOPICS += (
    Topic(
        Topics.MEMORY_COMMANDS,
        "Memory commands",
        "What is to be changed in a user's saved memories.",
        "The user's id.",
        "memories",
        "the window agent and the gateway",
        MEMORY_COMMANDS,
    ),
    Topic(
        Topics.MEMORY_CHANGES,
        "Memory changes",
        "What became of each memory command. Nothing of ours reads it: it is for frontends and analysts.",
        "The user's id.",
        "",
        "the memories agent",
        (
            Event(
                MemoryChanged,
                MemoryChanged(
                    id="3c9c9c55-8d2a-5b0e-9d53-0c1f1f7a6e21",
                    at=_at(9),
                    user_id="u1",
                    command_id="k1",
                    command="memory.ops",
                    by=Author.character,
                    version=1,
                    results=(
                        OpResult(op="save", status=Status.applied, memory_id="mem-5d5b5a0e8f0a", change=1),
                    ),
                ),
            ),
        ),
    ),
)

EVENTS = tuple(event for topic in TOPICS for event in topic.events)
