"""Scopes that this process has read or written last: a user whose chat goes on is not read anew for each command.

Nothing relies on it being right. A copy counts only while the user's version, log and offset are those it was made with,
which are read each time; and what is worked out from a copy that is not right any more is refused by the script.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from services.memories.state import Held, Mark

ENTRIES = 50_000
"""Entries that are kept, of all users together: about 1 KiB each."""


class Kept(NamedTuple):
    """Scopes of a user as they were at `mark`."""

    mark: Mark
    scopes: Mapping[str, Mapping[str, Held]]

    @property
    def size(self) -> int:
        """Entries, and one for itself."""
        return 1 + sum(map(len, self.scopes.values()))


class Cache:
    """The users that were asked for last."""

    def __init__(self, entries: int = ENTRIES) -> None:
        self._limit = entries
        self._size = 0
        self._users: OrderedDict[str, Kept] = OrderedDict()

    def get(self, user: str) -> Kept | None:
        """What is kept of a user."""
        return self._users.get(user)

    def put(self, user: str, kept: Kept) -> None:
        """Keep this instead of what was kept of the user; others may have to go for it."""
        self.drop(user)
        self._users[user] = kept
        self._size += kept.size
        while self._size > self._limit:
            self.drop(next(iter(self._users)))

    def drop(self, user: str) -> None:
        """Forget a user."""
        gone = self._users.pop(user, None)
        if gone is not None:
            self._size -= gone.size
