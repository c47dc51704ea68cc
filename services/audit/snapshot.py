"""One chat as it stood at one moment, without texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.chunks import ChunkClosed, Span
from schemas.memories import MemoryRollback
from schemas.summaries import Summary, Tier
from services.state.deleted import MARK


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
    """A message that is live or pending. `print` is equal for equal texts, and 0 for an empty one."""

    id: str
    tokens: int
    turn: str
    print: int
    deleted: bool = False


class TurnEntry(NamedTuple):
    """A turn in the turn table. `size` counts its messages, `messages` are their ids."""

    first: int
    size: int
    messages: tuple[str, ...] = ()


class ArchivedMessage(NamedTuple):
    """A message of a summarised chunk, read page by page and not kept."""

    seq: int
    id: str
    text: str
    turn: str
    deleted: bool = False


def print_of(text: str) -> int:
    """What a snapshot keeps of a text: enough to see whether it is another one, in this process."""
    return hash(text) if text else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """`numbers` is message id -> number. `merged_away` is name in the archive of summaries -> summary.

    `archive` and `order` name the chunks whose messages are archived; `order` has '' for one that has no summary yet.
    `turn_order` names the turns from the first one on. `covered`: below it, a live message is in a chunk as well.
    `memory_turns` are turns that may have written into saved memories, `rollbacks` what is not known to be taken back
    there yet. `outboxes` is agent -> entries that are not confirmed.
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
    turn_order: tuple[str, ...] = ()
    memory_turns: frozenset[str] = frozenset()
    rollbacks: Mapping[str, MemoryRollback] = field(default_factory=dict)

    @property
    def deleted(self) -> bool:
        """Whether the chat was deleted."""
        return MARK in self.fields

    @property
    def covered(self) -> int:
        """Live messages below this number are in a chunk as well: the window was filled again."""
        return self.number("co")

    @property
    def alone(self) -> tuple[Turn, ...]:
        """The live turns that are in no chunk."""
        return tuple(turn for turn in self.live if turn.first >= self.covered)

    @property
    def end_of_chunks(self) -> int:
        """Number of the first message that is in no chunk."""
        return self.number("n") - sum(turn.size for turn in (*self.alone, *self.pending))

    def number(self, field: str) -> int:
        """A counter of the window; 0 where it is missing, -1 where it is no number."""
        value = self.fields.get(field, "") or "0"
        return int(value) if value.isdecimal() else -1

    def summarised(self) -> dict[str, Span]:
        """Chunk id -> span of every chunk that has a summary, in use or merged away."""
        summaries = (*self.summaries, *self.merged_away.values())
        return {summary.id: summary.span for summary in summaries if summary.tier is Tier.recent}

    def by_hand(self) -> set[tuple[str, int]]:
        """Id and version of the summaries that a person has edited, and of those that were merged from such ones."""
        found: set[tuple[str, int]] = set()
        # from the oldest on: the sources of a summary come before it
        for summary in sorted(
            (*self.merged_away.values(), *self.summaries), key=lambda each: (each.span.messages, each.version)
        ):
            sources = (self.merged_away.get(name) for name in summary.provenance.source_ids)
            edited = summary.edited_at is not None
            if edited or any((each.id, each.version) in found for each in sources if each is not None):
                found.add((summary.id, summary.version))
        return found
