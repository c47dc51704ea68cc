"""What a chat remembers and how: for a panel and for operators (S9, W6)."""

from __future__ import annotations

from pydantic import Field

from schemas.base import Count, Id, Model
from schemas.chat import Level
from schemas.chunks import Span
from schemas.context import MemoryOff
from schemas.memories import Scope
from schemas.summaries import Summary, Tier


class TierView(Model):
    """One tier with its summaries in use, oldest first."""

    tier: Tier
    summaries: tuple[Summary, ...]
    tokens: Count
    span: Span | None = Field(description="First and last message covered, and how many.")


class MessagesView(Model):
    """Messages kept word for word, oldest first."""

    ids: tuple[Id, ...]
    count: Count
    tokens: Count
    span: Span | None


class PendingView(MessagesView):
    """Messages that left the window and are in no summary yet (W6)."""

    chunks: Count = Field(description="Closed chunks that wait for their summary.")
    oldest_age_seconds: float | None = Field(
        ge=0, description="Age of the oldest pending message by its own time; null: none is pending."
    )


class BoundsView(Model):
    """What the window may hold (W1). `tokens` is the smaller of the level's and a quarter of the model's window."""

    level: Level
    tokens: Count
    messages: Count
    long_term_tokens: Count


class SummarisedView(Model):
    """How much of the history is in summaries (S9)."""

    messages: Count
    of: Count = Field(description="All messages of the chat.")
    share: float = Field(ge=0, le=1)


class ScopeCount(Model):
    """How many saved memories a scope has, pinned ones counted."""

    scope: Scope
    memories: Count


class SavedView(Model):
    """What the chat reads of the saved memories of its owner: as the first part of a context."""

    off: MemoryOff | None = Field(description="Why no memories are read; null: they are.")
    learning_off: tuple[Id, ...] = Field(
        description="Characters of the chat for which learning is off: theirs are not read."
    )
    scopes: tuple[ScopeCount, ...] = Field(description="The scopes that are read, the global one first.")


class MemoryView(Model):
    """Answer of GET /v1/chats/{chat}/memory. `tiers` has all three, in the order of the prompt."""

    chat_id: Id
    generation: Count
    version: Count = Field(description="Grows with every change of the window.")
    turns: Count
    model: str | None = Field(description="The model of the last turn that named one.")
    model_context: int | None
    bounds: BoundsView
    tiers: tuple[TierView, ...] = Field(min_length=3, max_length=3)
    pending: PendingView
    live: MessagesView
    summarised: SummarisedView
    memories: SavedView
