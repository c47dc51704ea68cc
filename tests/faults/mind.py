"""What a user's memories have to be after commands, in the plainest way: every entry keeps a list of its writes.

An entry says what the last of its writes says that was not taken back. Nothing here is the product's.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

UNPINNED, PINNED, LENGTH = 100, 20, 500
_NAMESPACE = uuid.UUID("6f0c2d4e-58a1-5b7e-9d3a-2f6b1c7e8a90")
_OPS = ("save", "update", "delete", "pin", "unpin", "move", "restore")

Command = dict[str, Any]


@dataclass
class Write:
    """A text, or None where the entry ended. `turn` is (chat, turn) while it can be taken back with it."""

    number: int
    text: str | None
    by: str
    turn: tuple[str, str] | None


@dataclass
class Entry:
    """One memory, there or gone."""

    id: str
    scope: str
    pinned: bool
    writes: list[Write] = field(default_factory=list)
    made_by: str = ""

    @property
    def last(self) -> Write | None:
        """What it says; None where it is gone."""
        return self.writes[-1] if self.writes and self.writes[-1].text is not None else None

    @property
    def text(self) -> str | None:
        """The same as a text."""
        return None if self.last is None else self.last.text


class Mind:
    """The memories of one user."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.off = False
        self.displaced = self.struck = self.overtaken = 0
        self._number = 0

    def there(self) -> dict[str, tuple[str, bool, str]]:
        """Scope, pin and text of every entry that is there."""
        return {e.id: (e.scope, e.pinned, e.text) for e in self.entries.values() if e.text is not None}

    def texts(self) -> set[str]:
        """All that the entries and their history still say."""
        return {w.text for entry in self.entries.values() for w in entry.writes if w.text is not None}

    def apply(self, command: Command) -> list[tuple[str, str]]:
        """Carry a command out; operation and status of each result."""
        match command["type"]:
            case "memory.settings":
                off = not command["learn_from_chat"]
                changed, self.off = off != self.off, off
                return [("settings", "applied" if changed else "unchanged")]
            case "memory.rollback":
                return [("take_back", "applied")] * self._take_back(command)
            case _:
                return list(self._ops(command))

    def _ops(self, command: Command) -> Iterator[tuple[str, str]]:
        by, source = command["by"], command.get("source")
        turn = (source["chat"], source["turn"]) if source and by == "character" else None
        for index, op in enumerate(command["ops"]):
            # of what is no operation nothing is repeated
            yield op["op"] if op["op"] in _OPS else "", self._op(op, index, command, by, turn)

    def _op(self, op: Any, index: int, command: Command, by: str, turn: tuple[str, str] | None) -> str:
        kind = op["op"]
        if kind not in _OPS or not 0 < len(op.get("text", "x")) <= LENGTH:
            return "refused"
        if by == "character" and (self.off or self._forbidden(op)):
            return "refused"
        if kind == "save":
            return self._save(op, index, command, by, turn)
        entry = self.entries.get(op["id"])
        if entry is None or entry.text is None:
            return "refused"
        match kind:
            case "update":
                if entry.text == op["text"]:
                    return "unchanged"
                if by == "character" and self._echo(op["text"]):
                    return "echo"
                self._write(entry, op["text"], by, turn)
            case "delete":
                self._end(entry, by, turn)
            case "pin":
                if entry.pinned:
                    return "unchanged"
                if self._full(entry.scope):
                    return "refused"
                entry.pinned = True
            case "unpin":
                if not entry.pinned:
                    return "unchanged"
                entry.pinned = False
                self._make_room(entry.scope, by, turn, entry)
        return "applied"

    def _forbidden(self, op: Any) -> bool:
        if op["op"] == "save":
            return op.get("scope", "global") not in ("global", "character:mira")
        entry = self.entries.get(op["id"])
        if op["op"] not in ("update", "delete") or entry is None or entry.last is None or entry.pinned:
            return True
        return "user" in (entry.made_by, entry.last.by)

    def _save(self, op: Any, index: int, command: Command, by: str, turn: tuple[str, str] | None) -> str:
        id = op.get("id")
        pinned, scope = op.get("pinned", False), op.get("scope", "character:mira")
        if id in self.entries or (pinned and self._full(scope)):
            return "refused"
        if by == "character" and self._echo(op["text"]):
            return "echo"
        id = id or nameless(command["user_id"], command["id"], index)
        entry = self.entries[id] = Entry(id, scope, pinned, made_by=by)
        self._write(entry, op["text"], by, turn)
        self._make_room(scope, by, turn, entry)
        return "applied"

    def _echo(self, text: str) -> bool:
        return any(entry.text == text for entry in self.entries.values())

    def _full(self, scope: str) -> bool:
        return sum(e.pinned for e in self._in(scope)) >= PINNED

    def _in(self, scope: str) -> list[Entry]:
        return [e for e in self.entries.values() if e.text is not None and e.scope == scope]

    def _write(self, entry: Entry, text: str | None, by: str, turn: tuple[str, str] | None) -> None:
        self._number += 1
        entry.writes.append(Write(self._number, text, by, turn))

    def _end(self, entry: Entry, by: str, turn: tuple[str, str] | None) -> None:
        self._write(entry, None, by, turn)
        entry.pinned = False

    def _make_room(
        self, scope: str, by: str, turn: tuple[str, str] | None, stays: Entry | None = None
    ) -> None:
        unpinned = [entry for entry in self._in(scope) if not entry.pinned]
        over = len(unpinned) - UNPINNED
        if over > 0:
            oldest = sorted((e for e in unpinned if e is not stays), key=_age)
            for entry in oldest[:over]:
                self.displaced += 1
                self._end(entry, by, turn)

    def _take_back(self, command: Command) -> int:
        chat, turns = command["chat_id"], command.get("turns")
        affected, scopes = 0, set()
        for entry in self.entries.values():
            # without turns it is all that the chat wrote
            hit = [
                write
                for write in entry.writes
                if write.turn and write.turn[0] == chat and (turns is None or write.turn[1] in turns)
            ]
            if not hit:
                continue
            if entry.text is not None and entry.pinned:
                # it stays, and no later take-back reaches what these turns wrote
                for write in hit:
                    write.turn = None
                continue
            affected += _said(entry.writes, hit)
            self.overtaken += entry.writes[-1] not in hit
            entry.writes = [write for write in entry.writes if write not in hit]
            self.struck += len(hit)
            if entry.text is not None:
                scopes.add(entry.scope)
        for scope in sorted(scopes):
            self._make_room(scope, "system", None)
        return affected


def _said(writes: Iterable[Write], hit: list[Write]) -> bool:
    """Whether what is struck out has set a text, or ended one that there was."""
    text: str | None = None
    for write in writes:
        if write in hit and (write.text is not None or text is not None):
            return True
        text = write.text
    return False


def _age(entry: Entry) -> tuple[int, str]:
    assert entry.last is not None
    return entry.last.number, entry.id


def nameless(user: str, command: str, index: int) -> str:
    """The id of an entry that was saved without one."""
    derived = uuid.uuid5(_NAMESPACE, "\x1f".join(("memory", user, command, str(index))))
    return "mem-" + derived.hex[:12]
