"""Which saved memories go into a context (M6). Pure.

All pins go in. Of the others at most 100, spread evenly over the scopes: in each round every scope that has one left
gives its newest one, and where a round does not fit whole, its newest ones go in. A scope that has fewer leaves its
share to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from operator import attrgetter
from typing import NamedTuple

from schemas import limits

RECENT = limits.MEMORY_RECENT_DAYS * 24 * 60 * 60 * 1000
"""Milliseconds that a memory is recent after its last update."""


class Memory(NamedTuple):
    """A saved memory. `order` grows with every change of the user's memories: of two, the higher one is newer.

    `tokens` are those of its line (services/memories/injection.py), `by` is who wrote its text. `updated_at` is in
    milliseconds since 1970 (UTC).
    """

    id: str
    scope: str
    text: str
    pinned: bool
    order: int
    updated_at: int
    by: str
    tokens: int

    def is_recent(self, now: int) -> bool:
        """Updated in the last seven days before `now`."""
        return now - self.updated_at <= RECENT


class Selection(NamedTuple):
    """`pinned` and `unpinned` in the order in which they are to be taken, `beyond`: what is over the limit."""

    pinned: Sequence[Memory]
    unpinned: Sequence[Memory]
    beyond: Sequence[Memory]


_newest = attrgetter("order", "id")


def select(scopes: Iterable[Iterable[Memory]], limit: int = limits.MEMORIES_UNPINNED) -> Selection:
    """Chooses among the memories of the scopes in play. The order of the scopes and in them does not matter."""
    pinned: list[list[Memory]] = []
    unpinned: list[list[Memory]] = []
    for scope in scopes:
        entries = sorted(scope, key=_newest, reverse=True)
        pinned.append([entry for entry in entries if entry.pinned])
        unpinned.append([entry for entry in entries if not entry.pinned])
    taken = _in_turn(unpinned)
    return Selection(_in_turn(pinned), taken[:limit], sorted(taken[limit:], key=_newest, reverse=True))


def newest_first(memories: Iterable[Memory]) -> list[Memory]:
    """In the order in which they are written."""
    return sorted(memories, key=_newest, reverse=True)


def _in_turn(scopes: Sequence[Sequence[Memory]]) -> list[Memory]:
    """The newest of each scope, newest first; then the second of each; and so on."""
    taken: list[Memory] = []
    for row in zip_longest(*scopes):
        taken += sorted((entry for entry in row if entry is not None), key=_newest, reverse=True)
    return taken
