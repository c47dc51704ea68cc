"""A chat at one moment, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from schemas.chat import Level
from schemas.summaries import Tier


class StoredMessage(NamedTuple):
    """A live or pending message. `at` is in milliseconds since 1970 (UTC)."""

    seq: int
    id: str
    role: str
    author: str
    text: str
    tokens: int
    at: int
    turn: str


class StoredSummary(NamedTuple):
    """A summary in use. `text` is a JSON string; `data` is the stored JSON object, of the shape of
    schemas.summaries.Summary, as far as it was read."""

    id: str
    tier: Tier
    text: bytes
    tokens: int
    version: int
    data: Mapping[str, Any]

    @property
    def span(self) -> Mapping[str, Any]:
        """Of the shape of schemas.chunks.Span."""
        span: Mapping[str, Any] = self.data["span"]
        return span


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Messages and summaries are in the order of the chat. `user` is None where only signed-out users wrote.

    `characters` and `bounty` are of the chat's newest turn. `rollbacks`: command id -> the rollback of saved memories
    (schemas.memories.MemoryRollback, as JSON) that belongs to what the chat has taken back, and may not have taken
    effect yet.
    """

    chat: str
    user: str | None
    generation: int
    version: int
    level: Level
    model: str | None
    model_context: int | None
    turns: int
    messages: int
    summarised: int
    chunks: int
    pending: Sequence[StoredMessage]
    live: Sequence[StoredMessage]
    summaries: Sequence[StoredSummary]
    characters: tuple[str, ...] = ()
    bounty: bool = False
    rollbacks: Mapping[str, bytes] = field(default_factory=dict)

    def tier(self, tier: Tier) -> list[StoredSummary]:
        """Summaries of one tier, oldest first."""
        return [summary for summary in self.summaries if summary.tier is tier]
