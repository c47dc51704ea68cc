"""Which memories were chosen for a context, so that of hundreds only those are read the next time.

A choice holds as long as the user's memories have the version that it was made of. It has no texts: what was cleared or
taken back is in no cache.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from services.context.memories import Beyond

CHOICES = 512
"""Choices that a process remembers; one of a group of five characters with full scopes takes about 60 KiB."""


class Choice(NamedTuple):
    """Ids of the chosen memories by scope, what was beyond the limit, and of which version of the user's memories."""

    version: int
    ids: dict[str, list[bytes]]
    beyond: Beyond


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
