"""The context of the next reply: what a frontend puts before the user's new message (F2)."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Count, Id, Model, Timestamp
from schemas.chat import Level
from schemas.chunks import Span
from schemas.memories import Author, Scope
from schemas.turns import Role


class Part(StrEnum):
    """Parts of a context in the order of the prompt: the farthest first, the newest last."""

    memories = "memories"
    long_term = "long_term"
    merged = "merged"
    recent = "recent"
    pending = "pending"
    live = "live"


class Reason(StrEnum):
    """Why something is left out of a context."""

    over_budget = "over_budget"
    """It does not fit into what is left of the budget."""
    hole = "hole"
    """Something nearer was left out, so that this would stand beyond a hole."""
    rules_only = "rules_only"
    """It is left out but for its rules, which are in the text of the part (S5)."""
    over_limit = "over_limit"
    """There are more unpinned memories than a context has; newer ones are in, of every scope (M6)."""


class MemoryOff(StrEnum):
    """Why a context is without memories (O1, O3, O4)."""

    signed_out = "signed_out"
    """The chat has no user whose memories they could be."""
    bounty = "bounty"
    """A bounty chat starts from a blank page."""
    learning_off = "learning_off"
    """The user has switched learning off for every character of the chat."""


class ContextMemory(Model):
    """A saved memory that is in the text of its part."""

    id: Id
    scope: Scope
    text: str
    pinned: bool
    recent: bool = Field(description="Updated in the last seven days.")
    by: Author = Field(description="Who wrote its text.")
    updated_at: Timestamp


class MemoryPart(Model):
    """Saved memories of the user, as one text: pinned ones first, each newest first. Without any, an empty text."""

    part: Literal[Part.memories]
    text: str = Field(description="Between `<memories>` marks, one line each: `- [id pinned recent] text`.")
    tokens: Count
    ids: tuple[Id, ...] = Field(description="Ids of `entries`.")
    entries: tuple[ContextMemory, ...]
    off: MemoryOff | None = Field(description="Why no memories are read; null: they are.")
    learning_off: tuple[Id, ...] = Field(
        description="Characters of the chat for which learning is off: theirs are not read."
    )


class ContextMessage(Model):
    """A message, word for word. `seq` counts the chat's messages from 0, `tokens` are of the text."""

    seq: Count
    id: Id
    role: Role
    author: str
    text: str
    tokens: Count
    turn_id: Id
    at: Timestamp


class SummaryPart(Model):
    """A tier of summaries, as one text, oldest first. An empty tier has an empty text and no span."""

    part: Literal[Part.long_term, Part.merged, Part.recent]
    text: str
    tokens: Count
    ids: tuple[Id, ...] = Field(description="Summaries in the text, oldest first.")
    shortened: tuple[Id, ...] = Field(
        description="Those of `ids` of which only the rules are in the text; they are in `left_out` as well."
    )
    span: Span | None = Field(description="First and last message that the summaries of `ids` cover.")


class MessagePart(Model):
    """Messages word for word, oldest first."""

    part: Literal[Part.pending, Part.live]
    messages: tuple[ContextMessage, ...]
    tokens: Count
    ids: tuple[Id, ...] = Field(description="Ids of `messages`.")
    span: Span | None


class LeftOut(Model):
    """What is not in the context, and why."""

    part: Part
    ids: tuple[Id, ...] = Field(description="Summaries or messages, oldest first; memories, newest first.")
    tokens: Count
    reason: Reason = Field(
        description="over_budget: does not fit into what is left; hole: something nearer was left out; "
        "rules_only: all but its rules is left out; over_limit: there are more unpinned memories than go in."
    )
    limit: Count = Field(
        description="The budget that was to be kept, in tokens; of over_limit the number of memories."
    )


class Totals(Model):
    """Sums over all parts, in tokens as counted by Afterturn (o200k_base, texts alone)."""

    tokens: Count
    messages: Count = Field(description="Messages in pending and live.")
    summaries: Count = Field(description="Summaries in the three tiers.")
    memories: Count = Field(description="Saved memories.")
    left_out_tokens: Count
    budget: Count | None = Field(description="model_context - reserve; null: not limited.")
    model_context: int | None = Field(description="As asked for, else that of the chat's last model.")
    reserve: Count
    over_budget: bool = Field(
        description="The newest turn alone is over the budget; it stays all the same (W4)."
    )


class ContextView(Model):
    """Answer of GET /v1/chats/{chat}/context. `parts` has all six, in the order of the prompt."""

    chat_id: Id
    generation: Count
    version: Count = Field(description="Grows with every change of the window.")
    level: Level
    parts: tuple[Annotated[MemoryPart | SummaryPart | MessagePart, Field(discriminator="part")], ...] = Field(
        min_length=6, max_length=6
    )
    totals: Totals
    left_out: tuple[LeftOut, ...]
