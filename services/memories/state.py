"""Saved memories as they are kept: entries, the changes that made them, and what a command has to know of both.

Times are in milliseconds since 1970 (UTC). A text is only in a `Wording`: that of an entry, and those that a change
tells of (what it replaced, what it put there).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from schemas.memories import Author, Op
from services.memories import echo


class Action(StrEnum):
    """What a change did (M11)."""

    created = "created"
    edited = "edited"
    deleted = "deleted"
    displaced = "displaced"
    """It had to go for another one (M3, M5)."""
    restored = "restored"
    cleared = "cleared"
    pinned = "pinned"
    unpinned = "unpinned"
    moved = "moved"
    globalised = "globalised"
    """Moved to the global scope, because its character was deleted (M5)."""
    taken_back = "taken_back"
    """Changes of turns that are gone were undone (M9)."""
    learning_on = "learning_on"
    learning_off = "learning_off"


TEXT = frozenset(
    (Action.created, Action.edited, Action.deleted, Action.displaced, Action.restored, Action.cleared)
)
"""Actions that set or end a text. Each goes from `before` to `after`; the next one of the entry goes on from there."""


class Origin(NamedTuple):
    """Where a memory comes from; schemas.memories.Source in short."""

    chat: str
    turn: str | None = None
    messages: tuple[str, ...] = ()


class Wording(NamedTuple):
    """A text, and who wrote it. `order` is the number of the change that set it: the higher one is newer.

    `tokens` are those of the entry's line in a prompt (services/memories/injection.py).
    """

    text: str
    by: Author
    character: str | None
    at: int
    order: int
    source: Origin | None
    tokens: int


class Entry(NamedTuple):
    """One memory. `version` grows by one with every change of it, also of its pin or scope."""

    id: str
    scope: str
    pinned: bool
    wording: Wording
    version: int
    created_at: int
    created_by: Author


class Held(NamedTuple):
    """An entry as it is stored: what rules ask of all entries of a scope, and the rest unread.

    `newest` is the number of its newest change. `likeness` is equal for texts of which one merely repeats the other
    (services/memories/echo.py).
    """

    id: str
    scope: str
    pinned: bool
    order: int
    newest: int
    tokens: int
    likeness: bytes
    body: bytes

    def entry(self) -> Entry:
        """All of it."""
        wording, version, created_at, created_by = from_json(self.body)
        return Entry(
            self.id, self.scope, self.pinned, _wording(wording), version, created_at, Author(created_by)
        )

    def value(self) -> bytes:
        """As a field's value; `parse_held` reads it."""
        return b"%d %d %d %d %b %b" % self[2:]


class Change(NamedTuple):
    """One change in the history (M11). `previous` is the number of the same entry's change before, 0: none.

    `memory_id` is '' for a setting. One that was `taken_back` has no text any more, and neither have those of an entry
    that was cleared.
    """

    number: int
    previous: int
    memory_id: str
    action: Action
    at: int
    by: Author
    character: str | None
    source: Origin | None
    command: str
    scope: str
    before: Wording | None = None
    after: Wording | None = None
    from_scope: str | None = None
    taken_back: bool = False


class Place(NamedTuple):
    """Where an entry is, and the number of its newest change. Of one that is gone (`scope` is '') what it was like."""

    scope: str
    newest: int
    gone_from: str = ""
    pinned: bool = False
    version: int = 0
    created_at: int = 0
    created_by: Author = Author.user

    def value(self) -> str:
        """As a field's value; `parse_place` reads it."""
        if self.scope:
            return f"{self.scope} {self.newest}"
        gone = (self.gone_from, int(self.pinned), self.version, self.created_at, self.created_by)
        return " ".join(map(str, ("", self.newest, *gone)))


class Mark(NamedTuple):
    """A moment in a user's memories: the version, and the log and the offset of the last command."""

    version: int
    epoch: str
    offset: int


@dataclass(slots=True)
class Known:
    """What was read of a user's memories: as much as a command needs (services/memories/needs.py).

    `version` and `number` are those of the newest change. A place, or a change, that is None was looked up in vain.
    `journals`: chat -> field -> changes; of the chats in `whole_journals` all fields. `walked`: entry -> down to which
    change its history was read. `result` is that of the command where it has taken effect before. `parsed`: command ->
    its operations (policy.parsed).
    """

    version: int = 0
    number: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    scopes: dict[str, dict[str, Held]] = field(default_factory=dict)
    places: dict[str, Place | None] = field(default_factory=dict)
    changes: dict[int, Change | None] = field(default_factory=dict)
    journals: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    whole_journals: set[str] = field(default_factory=set)
    walked: dict[str, int] = field(default_factory=dict)
    result: bytes | None = None
    parsed: dict[str, list[Op | str]] = field(default_factory=dict)


_new = tuple.__new__

OFF, GONE, GONE_OFF = "0", "deleted", "deleted 0"
"""Values of a character's setting: not learned from (O1); its memories are global since it was deleted (M5); both."""

SILENT, DELETED = frozenset((OFF, GONE_OFF)), frozenset((GONE, GONE_OFF))
"""Those of characters that are not learned from, and of deleted ones."""


def held(entry: Entry, newest: int) -> Held:
    """An entry as it is to be stored, and the number of its newest change."""
    wording = entry.wording
    body = to_json((_plain(wording), entry.version, entry.created_at, entry.created_by))
    likeness = echo.likeness(wording.text)
    return Held(entry.id, entry.scope, entry.pinned, wording.order, newest, wording.tokens, likeness, body)


def parse_held(memory_id: str, scope: str, value: bytes) -> Held:
    """The value of a field of a scope's hash."""
    pinned, order, newest, tokens, likeness, body = value.split(b" ", 5)
    fields = (memory_id, scope, pinned == b"1", int(order), int(newest), int(tokens), likeness, body)
    # a scope has up to 120 of them: this takes half the time that its class does
    return _new(Held, fields)


def parse_entry(memory_id: str, scope: str, value: bytes) -> Entry:
    """The same, all of it."""
    return parse_held(memory_id, scope, value).entry()


def parse_place(value: bytes) -> Place:
    """The value of a field of the places' hash."""
    scope, newest, *gone = value.decode().split(" ")
    if not gone:
        return Place(scope, int(newest))
    gone_from, pinned, version, created_at, created_by = gone
    return Place(
        scope, int(newest), gone_from, pinned == "1", int(version), int(created_at), Author(created_by)
    )


def dump_change(change: Change) -> bytes:
    """The value of a field of the history. `previous` comes first: chains.lua looks for it there."""
    value: dict[str, Any] = {"previous": change.previous, "number": change.number}
    for name in ("memory_id", "action", "at", "by", "character", "command", "scope", "from_scope"):
        content = getattr(change, name)
        if content is not None:
            value[name] = content
    if change.source is not None:
        value["source"] = change.source
    if change.before is not None:
        value["before"] = _plain(change.before)
    if change.after is not None:
        value["after"] = _plain(change.after)
    if change.taken_back:
        value["taken_back"] = True
    return to_json(value)


def parse_change(value: bytes) -> Change:
    """The value of a field of the history."""
    found = from_json(value)
    before, after, source = found.get("before"), found.get("after"), found.get("source")
    return Change(
        number=found["number"],
        previous=found["previous"],
        memory_id=found["memory_id"],
        action=Action(found["action"]),
        at=found["at"],
        by=Author(found["by"]),
        character=found.get("character"),
        source=_origin(source),
        command=found["command"],
        scope=found["scope"],
        before=_wording(before) if before is not None else None,
        after=_wording(after) if after is not None else None,
        from_scope=found.get("from_scope"),
        taken_back=found.get("taken_back", False),
    )


def parse_numbers(value: bytes) -> tuple[int, ...]:
    """Change numbers of a field of a journal."""
    return tuple(map(int, value.split()))


def dump_numbers(numbers: Iterable[int]) -> str:
    """The value of a field of a journal."""
    return " ".join(map(str, numbers))


def milliseconds(at: datetime) -> int:
    """A time as it is kept."""
    return int(at.timestamp() * 1000)


def moment(at: int) -> datetime:
    """A time as it is shown."""
    return datetime.fromtimestamp(at / 1000, UTC)


def _plain(wording: Wording) -> tuple[Any, ...]:
    return tuple(wording)


def _wording(plain: list[Any]) -> Wording:
    text, by, character, at, order, source, tokens = plain
    return Wording(text, Author(by), character, at, order, _origin(source), tokens)


def _origin(plain: list[Any] | None) -> Origin | None:
    if plain is None:
        return None
    chat, turn, messages = plain
    return Origin(chat, turn, tuple(messages))
