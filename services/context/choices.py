"""Which memories were chosen for a context, so that of hundreds only those are read the next time, and little is made of
them again.

A choice holds as long as the user's memories have the version that it was made of. It has no texts: what was cleared or
taken back is in no cache.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from services.context.entries import Form, decoded, form
from services.context.memories import Beyond, Memories, Memory
from services.memories.selection import Candidate, Selection

CHOICES = 256
"""Choices that a process remembers; one of a group of five characters with full scopes takes about 200 KiB."""

_scope = attrgetter("scope")


class Choice(NamedTuple):
    """What was chosen of one version of the user's memories.

    `asked`: scopes and the ids of their entries, `entries` in the same order: those without a form have no body.
    `pinned` and `unpinned` are places among them in the order in which they are to be taken, `beyond` is what was over
    the limit. It holds until `until`, in milliseconds since 1970, when one of them is not recent any more.
    """

    version: int
    until: int | None
    asked: Sequence[tuple[str, Sequence[str]]]
    entries: Sequence[Form | Candidate]
    pinned: Sequence[int]
    unpinned: Sequence[int]
    beyond: Beyond

    @classmethod
    def of(cls, version: int, selection: Selection, beyond: Beyond, now: int) -> Choice:
        """From what was selected."""
        chosen = [*selection.pinned, *selection.unpinned]
        entries = sorted(chosen, key=_scope)
        places = {entry.id: place for place, entry in enumerate(entries)}
        order = [places[entry.id] for entry in chosen]
        pins = len(selection.pinned)
        forms = [form(each, each.body, now) for each in entries]
        return cls(
            version,
            min((each.until for each in forms if each is not None and each.until is not None), default=None),
            [(scope, [each.id for each in some]) for scope, some in groupby(entries, _scope)],
            [made or entry._replace(body=b"") for made, entry in zip(forms, entries, strict=True)],
            order[:pins],
            order[pins:],
            beyond,
        )

    def holds(self, version: int, now: int) -> bool:
        """Whether it is of the version that the memories have, and still of this time."""
        return self.version == version and (self.until is None or now <= self.until)

    def filled(self, values: Sequence[bytes], now: int, learning_off: tuple[str, ...]) -> Memories:
        """With what is stored, in the order of `entries`."""
        made: list[Memory] = [
            entry.filled(value) if isinstance(entry, Form) else decoded(entry, value, now)
            for entry, value in zip(self.entries, values, strict=True)
        ]
        return Memories(
            [made[place] for place in self.pinned],
            [made[place] for place in self.unpinned],
            self.beyond,
            learning_off=learning_off,
        )


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
