"""Events on `credits.usage.v1`: what a use of a model cost in tokens; key = user id, or chat id when signed out."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from schemas import limits
from schemas.base import Id, Model, Timestamp, Tokens


class Stage(StrEnum):
    """What the model was used for (C1)."""

    reply = "reply"
    chunk = "chunk"
    merge = "merge"
    compress = "compress"
    draft = "draft"
    generation = "generation"


class UsageBooked(Model):
    """One use. The same `id` is booked once, however often it arrives (C2)."""

    type: Literal["usage.booked"] = "usage.booked"
    id: Id
    at: Timestamp
    user_id: Id | None = None
    chat_id: Id | None = Field(default=None, description="Without one: nothing of a chat was read for it.")
    character: Id | None = None
    model: str = Field(min_length=1, max_length=limits.NAME_CHARACTERS)
    stage: Stage
    tokens_in: Tokens
    tokens_out: Tokens
