"""Which memories were chosen for a context, so that of hundreds only those are read the next time.

A choice holds as long as the user's memories have the version that it was made of. It has no texts: what was cleared or
taken back is in no cache.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from services.context.memories import Beyond
from services.memories.selection import Candidate, Selection

CHOICES = 512
"""Choices that a process remembers; one of a group of five characters with full scopes takes about 80 KiB."""

_scope = attrgetter("scope")


class Choice(NamedTuple):
    """What was chosen of one version of the user's memories: `entries` scope by scope and without their bodies, places
    of pinned and unpinned ones among them in the order in which they are to be taken, and what was beyond the limit."""

    version: int
    entries: list[Candidate]
    pinned: list[int]
    unpinned: list[int]
    beyond: Beyond

    @classmethod
    def of(cls, version: int, selection: Selection, beyond: Beyond) -> Choice:
        """From what was selected."""
        chosen = [each._replace(body=b"") for each in (*selection.pinned, *selection.unpinned)]
        entries = sorted(chosen, key=_scope)
        places = {entry.id: place for place, entry in enumerate(entries)}
        order = [places[entry.id] for entry in chosen]
        pins = len(selection.pinned)
        return cls(version, entries, order[:pins], order[pins:], beyond)

    def ids(self) -> list[tuple[str, list[str]]]:
        """Scopes and the ids of their entries, in the order of `entries`."""
        return [(scope, [each.id for each in entries]) for scope, entries in groupby(self.entries, _scope)]


class Choices:
    """The last ones used, by user and scopes in play."""

    def __init__(self, most: int = CHOICES) -> None:
        self._most = most
        self._known: OrderedDict[tuple[str, tuple[str, ...]], Choice] = OrderedDict()

    def find(self, user: str, scopes: tuple[str, ...]) -> Choice | None:
        """The newest one; whether it still holds, its version tells."""
        key = user, scopes
        if key in self._known:
            self._known.move_to_end(key)
        return self._known.get(key)

    def put(self, user: str, scopes: tuple[str, ...], choice: Choice) -> None:
        """Remembers it; the one unused for longest is forgotten where there are too many."""
        key = user, scopes
        self._known[key] = choice
        self._known.move_to_end(key)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def drop(self, user: str, scopes: tuple[str, ...]) -> None:
        """Forgets it."""
        self._known.pop((user, scopes), None)
