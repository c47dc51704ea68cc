"""Events on `chat.chunks.v1`: a piece of the history left the window and wants a summary; key = chat id."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.base import Count, Id, Model, Timestamp
from schemas.chat import ChatRef, Level


class Span(Model):
    """A range of messages of one chat, both ends included.

    `first_seq` and `last_seq` count the chat's messages from 0 in the order they were recorded.
    """

    first_seq: Count
    last_seq: Count
    first_message: Id
    last_message: Id
    messages: int = Field(ge=1)


class ChunkClosed(Model):
    """Whole turns, oldest first. The texts stay in Redis; `index` counts the chat's chunks from 0, without gaps."""

    type: Literal["chunk.closed"] = "chunk.closed"
    id: Id = Field(description="uuid5 of chat, generation, first and last message number")
    at: Timestamp
    chat: ChatRef
    user_id: Id | None = None
    generation: Count = Field(description="Raised when something of the chat is taken back.")
    index: Count
    span: Span
    tokens: Count
    level: Level
