"""Which saved memories go into a context (M6). Pure.

All pins go in. Of the others at most 100, spread evenly over the scopes: in each round every scope that has one left
gives its newest one, and where a round does not fit whole, its newest ones go in. A scope that has fewer leaves its
share to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from schemas import limits

RECENT = limits.MEMORY_RECENT_DAYS * 24 * 60 * 60 * 1000
"""Milliseconds that a memory is recent after its last update."""


class Candidate(NamedTuple):
    """A saved memory as far as choosing goes; `body` is the rest of it, as it is stored.

    `order` is that of services.memories.state.Wording: of two memories of a user the one with the higher one is newer.
    """

    order: int
    id: str
    scope: str
    pinned: bool
    tokens: int
    body: bytes


class Selection(NamedTuple):
    """`pinned` and `unpinned` in the order in which they are to be taken; `beyond`: over the limit, newest first."""

    pinned: Sequence[Candidate]
    unpinned: Sequence[Candidate]
    beyond: Sequence[Candidate]


def select(scopes: Iterable[Iterable[Candidate]], limit: int = limits.MEMORIES_UNPINNED) -> Selection:
    """Chooses among the memories of the scopes in play. The order of the scopes and in them does not matter."""
    pinned: list[list[Candidate]] = []
    unpinned: list[list[Candidate]] = []
    for scope in scopes:
        newest_first = sorted(scope, reverse=True)
        pinned.append([each for each in newest_first if each.pinned])
        unpinned.append([each for each in newest_first if not each.pinned])
    every_pin, _ = _in_turn(pinned, sum(map(len, pinned)))
    return Selection(every_pin, *_in_turn(unpinned, limit))


def is_recent(updated_at: int, now: int) -> bool:
    """Updated in the last seven days; both in milliseconds since 1970."""
    return now - updated_at <= RECENT


def _in_turn(scopes: Sequence[Sequence[Candidate]], limit: int) -> tuple[list[Candidate], list[Candidate]]:
    """The newest of each scope, newest first; then the second of each; and so on, up to the limit. And the others."""
    taken: list[Candidate] = []
    place = 0
    while len(taken) < limit and (row := [scope[place] for scope in scopes if len(scope) > place]):
        taken += sorted(row, reverse=True)
        place += 1
    others = [*taken[limit:], *(each for scope in scopes for each in scope[place:])]
    return taken[:limit], sorted(others, reverse=True)
