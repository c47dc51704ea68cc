"""Saved memories in a context: which of the chosen ones fit, and the part that they make. Pure; sizes are in tokens.

Pins come right after the newest turn (M8), and other memories after them with a quarter of the budget at most. What is
left of those goes in at the end, where messages and summaries leave room: then everything is in when it fits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic_core import to_json

from schemas.context import MemoryOff, Part, Reason
from services.memories import injection

SHARE = 4
"""Unpinned memories come before messages in one part in so many of the budget."""


_OPENING, _LINE_END, _CLOSING = (
    to_json(each)[1:-1] for each in (injection.OPENING, "\n", "\n" + injection.CLOSE)
)


class Memory(NamedTuple):
    """A memory that may go in. `line` are the pieces of a JSON string without its quotation marks, `tokens` are of it; `shown`
    are those of the JSON object of an answer (of the shape of schemas.context.MemoryEntry).

    By `order` and `id` the newer of two is the larger one.
    """

    order: int
    id: str
    pinned: bool
    tokens: int
    line: tuple[bytes, bytes]
    shown: tuple[bytes, bytes, bytes]


class Beyond(NamedTuple):
    """What is over the limit of M6: ids, newest first, and the tokens of their lines."""

    ids: tuple[str, ...] = ()
    tokens: int = 0


_NONE = Beyond()


@dataclass(frozen=True, slots=True)
class Memories:
    """What there is to take, in that order. `learning_off` are characters."""

    pinned: Sequence[Memory] = ()
    unpinned: Sequence[Memory] = ()
    beyond: Beyond = _NONE
    off: MemoryOff | None = None
    learning_off: tuple[str, ...] = ()


NO_MEMORIES = Memories()


@dataclass(frozen=True, slots=True)
class Status:
    """What is read of memories without reading them: how many there are in each scope. `version` grows with every
    change of the user's memories."""

    version: int = 0
    off: MemoryOff | None = None
    learning_off: tuple[str, ...] = ()
    scopes: tuple[tuple[str, int], ...] = ()


NO_STATUS = Status()


class Share:
    """What memories take of a budget; None: there is no limit."""

    def __init__(self, memories: Memories, budget: int | None) -> None:
        self._memories = memories
        self._budget = budget
        self._pinned: list[Memory] = []
        self._unpinned: list[Memory] = []
        self._left: Sequence[Memory] = ()
        self._omitted: list[Memory] = []
        self.tokens = 0

    def first(self, used: int) -> None:
        """Pins as far as they fit beside `used` tokens, and unpinned ones within their share."""
        self._omitted = self._take(self._memories.pinned, self._pinned, self._left_of(used))
        share = None if self._budget is None else self.tokens + self._budget // SHARE
        self._left = self._take(self._memories.unpinned, self._unpinned, self._left_of(used, share))

    def rest(self, used: int) -> None:
        """Unpinned ones that were over their share, as far as they fit; `used` is without memories."""
        self._omitted += self._take(self._left, self._unpinned, self._left_of(used))

    def _left_of(self, used: int, share: int | None = None) -> int | None:
        if self._budget is None:
            return None
        left = self._budget - used
        return left if share is None else min(left, share)

    def _take(self, memories: Sequence[Memory], into: list[Memory], most: int | None) -> list[Memory]:
        """As many as fit into `most`; returns the others."""
        others = []
        for memory in memories:
            tokens = (self.tokens or injection.FRAME_TOKENS) + memory.tokens
            if most is None or tokens <= most:
                self.tokens = tokens
                into.append(memory)
            else:
                others.append(memory)
        return others

    def taken(self) -> list[Memory]:
        """In the order of the text: pinned ones first, each newest first."""
        return [*sorted(self._pinned, reverse=True), *sorted(self._unpinned, reverse=True)]

    def omitted(self) -> list[tuple[tuple[str, ...], int, Reason]]:
        """What is not in, by reason: ids, newest first, and their tokens."""
        over = sorted(self._omitted, reverse=True)
        groups = (
            (tuple([each.id for each in over]), sum([each.tokens for each in over]), Reason.over_budget),
            (*self._memories.beyond, Reason.over_limit),
        )
        return [group for group in groups if group[0]]


def status_view(status: Status) -> dict[str, Any]:
    """Of the shape of schemas.memory_view.SavedView."""
    return {
        "off": status.off,
        "learning_off": status.learning_off,
        "scopes": [{"scope": scope, "memories": count} for scope, count in status.scopes],
    }


def part_json(memories: Memories, taken: Sequence[Memory], tokens: int) -> Iterator[bytes]:
    """Pieces of JSON of the shape of schemas.context.MemoryPart."""
    around = {
        "part": Part.memories,
        "tokens": tokens,
        "ids": [each.id for each in taken],
        "off": memories.off,
        "learning_off": memories.learning_off,
    }
    yield to_json(around)[:-1]
    yield b',"text":"'
    if taken:
        yield _OPENING
        for each in taken:
            yield _LINE_END
            yield from each.line
        yield _CLOSING
    yield b'","entries":['
    yield from joined([each.shown for each in taken])
    yield b"]}"


def joined(values: Sequence[tuple[bytes, bytes, bytes]]) -> Iterator[bytes]:
    """The pieces of JSON values, with commas between these."""
    for place, value in enumerate(values):
        if place:
            yield b","
        yield from value
