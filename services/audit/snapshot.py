"""One chat as it stood at one moment, without texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from schemas.chunks import ChunkClosed, Span
from schemas.summaries import Summary, Tier


class Turn(NamedTuple):
    """A turn in the live or the pending list. `size` counts its messages, `tokens` is the sum over its messages."""

    first: int
    size: int
    tokens: int
    first_id: str
    last_id: str

    @property
    def last(self) -> int:
        """Number of its last message."""
        return self.first + self.size - 1


class Held(NamedTuple):
    """A message that is live or pending."""

    id: str
    tokens: int
    turn: str


class TurnEntry(NamedTuple):
    """A turn in the turn table. `size` counts its messages."""

    first: int
    size: int


class ArchivedMessage(NamedTuple):
    """A message of a summarised chunk, read page by page and not kept."""

    seq: int
    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`numbers` is message id -> number. `merged_away` is name in the archive of summaries -> summary.

    `archive` and `order` name the chunks whose messages are archived; `order` has '' for one that has no summary yet.
    `outboxes` is agent -> entries that are not confirmed.
    """

    chat: str
    fields: Mapping[str, str]
    messages: Mapping[int, Held]
    live: tuple[Turn, ...]
    pending: tuple[Turn, ...]
    turns: Mapping[str, TurnEntry]
    numbers: Mapping[str, int]
    chunks: tuple[ChunkClosed, ...]
    summaries: tuple[Summary, ...]
    merged_away: Mapping[str, Summary]
    archive: frozenset[str]
    order: tuple[str, ...]
    outboxes: Mapping[str, int]

    def number(self, field: str) -> int:
        """A counter of the window; 0 where it is missing, -1 where it is no number."""
        value = self.fields.get(field, "") or "0"
        return int(value) if value.isdecimal() else -1

    def summarised(self) -> dict[str, Span]:
        """Chunk id -> span of every chunk that has a summary, in use or merged away."""
        summaries = (*self.summaries, *self.merged_away.values())
        return {summary.id: summary.span for summary in summaries if summary.tier is Tier.recent}
