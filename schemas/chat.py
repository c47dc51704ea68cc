"""The chat that an event belongs to, and how much of it is kept verbatim."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from pydantic import Field

from schemas.base import Id, Model


class Surface(StrEnum):
    """Where the chat takes place."""

    web = "web"
    discord = "discord"
    telegram = "telegram"
    api = "api"


class ChatKind(StrEnum):
    """A bounty chat starts from a blank page each time and uses no saved memories (O3)."""

    normal = "normal"
    bounty = "bounty"


class Level(StrEnum):
    """Memory detail: how much is kept verbatim and how closely the rest is told (W1, S3)."""

    key_events = "key_events"
    balanced = "balanced"
    detailed = "detailed"


class LevelBounds(NamedTuple):
    """Bounds of one level: window tokens, window messages, cap of the long-term memory in tokens."""

    tokens: int
    messages: int
    long_term_tokens: int


LEVELS: dict[Level, LevelBounds] = {
    Level.key_events: LevelBounds(6_000, 30, 4_000),
    Level.balanced: LevelBounds(10_000, 50, 8_000),
    Level.detailed: LevelBounds(16_000, 80, 16_000),
}
DEFAULT_LEVEL = Level.balanced


class ChatRef(Model):
    """The chat of a turn. Its id is the key of every record about it."""

    id: Id = Field(description="The key of the record, too.")
    surface: Surface = Field(
        default=Surface.api,
        description="Where the chat takes place; on Discord and Telegram always balanced.",
    )
    kind: ChatKind = Field(default=ChatKind.normal, description="A bounty chat uses no saved memories.")
    characters: tuple[Id, ...] = Field(
        default=(), max_length=50, fail_fast=True, description="Ids; several in a group chat."
    )
    persona: Id | None = Field(default=None, description="Id of the persona that the user plays.")


class UserRef(Model):
    """Who writes. An event without a user comes from someone signed out."""

    id: Id = Field(description="Who pays for what the chat uses.")
    subscribed: bool = Field(default=False, description="Whether a subscription is active.")
