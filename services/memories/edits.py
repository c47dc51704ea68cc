"""A user's memories while a command is worked out: what was read, and what the command does to it. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from schemas.memories import GLOBAL, Author, character_of
from services.memories import caps
from services.memories.state import (
    DELETED,
    TEXT,
    Action,
    Change,
    Entry,
    Held,
    Known,
    Origin,
    Place,
    Wording,
    held,
)


class Writer(NamedTuple):
    """Who changes something, for which command, when (milliseconds), and from where."""

    by: Author
    command: str
    at: int
    character: str | None = None
    source: Origin | None = None


class Edits:
    """Reads through to what is known, and collects what is to be written.

    An entry can be put only into a scope that was read. Every method keeps entries, places and history in step.
    """

    def __init__(self, known: Known) -> None:
        self._known = known
        self._scopes = {scope: dict(entries) for scope, entries in known.scopes.items()}
        self.number = known.number
        self.places: dict[str, Place] = {}
        self.changes: dict[int, Change] = {}
        self.settings: dict[str, str | None] = {}
        self._touched: dict[str, set[str]] = {}
        self._histories: dict[str, list[int]] | None = None

    # what is there

    def scope(self, scope: str) -> Mapping[str, Held]:
        """The entries of a scope."""
        return self._scopes[scope]

    @property
    def scopes(self) -> Mapping[str, Mapping[str, Held]]:
        """Every scope that was read, as it is now."""
        return self._scopes

    def place(self, memory_id: str) -> Place | None:
        """Where an entry is or was; None: there has never been one."""
        place = self.places.get(memory_id) or self._known.places.get(memory_id)
        if place is None:
            for scope, entries in self._scopes.items():
                if memory_id in entries:
                    return Place(scope, entries[memory_id].newest)
        return place

    def find(self, memory_id: str) -> Held | None:
        """An entry that is there."""
        place = self.place(memory_id)
        return self._scopes[place.scope][memory_id] if place is not None and place.scope else None

    def change(self, number: int) -> Change | None:
        """A change of the history, with what the command did to it."""
        return self.changes.get(number) or self._known.changes.get(number)

    def setting(self, character: str) -> str | None:
        """The setting of a character; None: as by default."""
        if character in self.settings:
            return self.settings[character]
        return self._known.settings.get(character)

    def home(self, scope: str) -> str:
        """Where what belongs into a scope goes: that of a deleted character is the global one now (M5)."""
        character = character_of(scope)
        return GLOBAL if character is not None and self.setting(character) in DELETED else scope

    def history(self, memory_id: str) -> list[Change]:
        """The changes of an entry that were read or made, oldest first."""
        if self._histories is None:
            self._histories = {}
            for number in sorted({*self._known.changes, *self.changes}):
                change = self.change(number)
                if change is not None:
                    self._histories.setdefault(change.memory_id, []).append(number)
        found = map(self.change, self._histories.get(memory_id, ()))
        return [change for change in found if change is not None]

    def next_text(self, change: Change) -> Change | None:
        """The entry's next change, not taken back, that set or ended its text."""
        for later in self.history(change.memory_id):
            if later.number > change.number and later.action in TEXT and not later.taken_back:
                return later
        return None

    # what is done

    def record(
        self,
        action: Action,
        memory_id: str,
        scope: str,
        writer: Writer,
        *,
        before: Wording | None = None,
        after: Wording | None = None,
        from_scope: str | None = None,
    ) -> int:
        """Append a change to the history; its number."""
        place = self.place(memory_id) if memory_id else None
        self.number += 1
        self.changes[self.number] = Change(
            self.number,
            place.newest if place is not None else 0,
            memory_id,
            action,
            writer.at,
            writer.by,
            writer.character,
            writer.source,
            writer.command,
            scope,
            before,
            after,
            from_scope,
        )
        if self._histories is not None:
            self._histories.setdefault(memory_id, []).append(self.number)
        if place is not None:
            self.places[memory_id] = place._replace(newest=self.number)
            if place.scope:
                entries = self._scopes[place.scope]
                entries[memory_id] = entries[memory_id]._replace(newest=self.number)
                self._touch(place.scope, memory_id)
        return self.number

    def rewrite(self, change: Change) -> None:
        """A change of the history says something else about texts."""
        self.changes[change.number] = change

    def put(self, entry: Entry) -> None:
        """An entry is there from now on, or is another one. Its newest change is the one recorded last for it."""
        place = self.place(entry.id)
        if place is not None and place.scope and place.scope != entry.scope:
            del self._scopes[place.scope][entry.id]
            self._touch(place.scope, entry.id)
        newest = self.number if place is None else place.newest
        self._scopes[entry.scope][entry.id] = held(entry, newest)
        self.places[entry.id] = Place(entry.scope, newest)
        self._touch(entry.scope, entry.id)

    def drop(self, memory_id: str) -> Entry:
        """An entry is gone; what it was like."""
        place = self.place(memory_id)
        assert place is not None
        entry = self._scopes[place.scope].pop(memory_id).entry()
        self._touch(place.scope, memory_id)
        gone = (entry.scope, entry.pinned, entry.version, entry.created_at, entry.created_by)
        self.places[memory_id] = Place("", place.newest, *gone)
        return entry

    def end(self, action: Action, memory_id: str, writer: Writer) -> int:
        """An entry is gone, and the history says so; the number of the change."""
        entry = self.drop(memory_id)
        return self.record(action, memory_id, entry.scope, writer, before=entry.wording)

    def make_room(self, scope: str, writer: Writer, stay: Collection[str] = ()) -> list[str]:
        """Displace what is over the limit of a scope (M3); ids of what had to go."""
        over = caps.overflow(self._scopes[scope].values(), stay)
        for entry in over:
            self.end(Action.displaced, entry.id, writer)
        return [entry.id for entry in over]

    # what is to be written

    @property
    def known(self) -> Known:
        """What it began with."""
        return self._known

    def touched(self) -> Iterable[tuple[str, dict[str, bytes], list[str]]]:
        """Per scope that is another one now: what to set, and what to delete."""
        for scope, ids in self._touched.items():
            before, entries = self._known.scopes[scope], self._scopes[scope]
            sets = {key: entries[key].value() for key in sorted(ids) if key in entries}
            deletes = [key for key in sorted(ids) if key not in entries and key in before]
            if sets or deletes:
                yield scope, sets, deletes

    def _touch(self, scope: str, memory_id: str) -> None:
        self._touched.setdefault(scope, set()).add(memory_id)
