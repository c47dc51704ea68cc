"""Commands on saved memories for the tests, and a user's memories without Redis: every rule, no I/O."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from schemas.delivery import Position
from schemas.memories import MEMORY_COMMAND, MemoryChanged, MemoryCommand, OpResult, Status
from services.memories.decide import decide
from services.memories.edits import Edits
from services.memories.service import Delivered
from services.memories.state import TEXT, Action, Change, Entry, Known, Wording

EPOCH = "log-1"
START = datetime(2026, 11, 30, 10, tzinfo=UTC)
MIRA = "character:mira"


def command(number: int | str, type: str = "memory.ops", *, user: str = "u1", **fields: Any) -> MemoryCommand:
    """The command `k<number>`."""
    at = START + timedelta(seconds=number if isinstance(number, int) else 0)
    return MEMORY_COMMAND.validate_python(
        {"type": type, "id": f"k{number}", "at": at, "user_id": user, **fields}
    )


def delivered(offset: int, of: MemoryCommand, *, epoch: str = EPOCH, partition: int = 0) -> Delivered:
    """A command as read at `offset`."""
    return Delivered(of, Position(epoch, partition, offset), 1_790_000_000_000 + offset)


def characters(text: str) -> int:
    """One token a character."""
    return len(text)


class Mind:
    """All memories of one user, in this process."""

    def __init__(self) -> None:
        self.known = Known()
        self.commands = 0

    def run(self, type: str = "memory.ops", **fields: Any) -> MemoryChanged:
        """Carry out the next command."""
        self.commands += 1
        return self.carry_out(command(self.commands, type, **fields))

    def carry_out(self, of: MemoryCommand) -> MemoryChanged:
        """Carry out a command, as the script would store it."""
        known = self.known
        for scope in ("global", *(f"character:{name}" for name in ("mira", "tom", "ada"))):
            known.scopes.setdefault(scope, {})
        known.whole_journals |= {"c1", "c2"}
        outcome = decide(of, known, characters, START)
        edits = outcome.edits
        known.scopes = {scope: dict(entries) for scope, entries in edits.scopes.items()}
        known.places |= edits.places
        known.changes |= edits.changes
        for character, value in edits.settings.items():
            if value is None:
                known.settings.pop(character, None)
            else:
                known.settings[character] = value
        if outcome.chat is not None:
            journal = known.journals.setdefault(outcome.chat, {})
            for field, numbers in outcome.journal.items():
                if numbers is None:
                    journal.pop(field, None)
                else:
                    journal[field] = numbers
        known.version, known.number = outcome.result.version, edits.number
        check(self.entries(), self.changes())
        return outcome.result

    def ops(self, *ops: dict[str, Any], **fields: Any) -> list[OpResult]:
        """Operations of the user, or of whom the fields name."""
        return list(self.run(ops=ops, **{"by": "user", **fields}).results)

    def turn(self, turn: str, *ops: dict[str, Any], chat: str = "c1", **fields: Any) -> list[OpResult]:
        """Operations of Mira in a turn."""
        told = {"by": "character", "character": "mira", "source": {"chat": chat, "turn": turn}, **fields}
        return list(self.run(ops=ops, **told).results)

    def save(self, text: str, scope: str = MIRA, **fields: Any) -> str:
        """A memory that the user adds; its id."""
        [result] = self.ops({"op": "save", "text": text, "scope": scope, **fields})
        assert result.status is Status.applied, result
        assert result.memory_id is not None
        return result.memory_id

    def say(self, turn: str, text: str, **fields: Any) -> str:
        """A memory that Mira saves in a turn; its id."""
        [result] = self.turn(turn, {"op": "save", "text": text, **fields})
        assert result.status is Status.applied, result
        assert result.memory_id is not None
        return result.memory_id

    def take_back(self, *turns: str, chat: str = "c1", **fields: Any) -> MemoryChanged:
        """The turns are gone."""
        return self.run("memory.rollback", chat_id=chat, generation=1, turns=turns, **fields)

    def fill(self, scope: str = MIRA, count: int = 100, *, pinned: bool = False) -> list[str]:
        """So many memories in a scope; their ids, the oldest first."""
        return [self.save(f"{scope} {pinned} fact number {n}", scope, pinned=pinned) for n in range(count)]

    def entries(self) -> list[Entry]:
        """All of them."""
        return [held.entry() for entries in self.known.scopes.values() for held in entries.values()]

    def find(self, memory_id: str) -> Entry | None:
        """The entry with this id."""
        return next((entry for entry in self.entries() if entry.id == memory_id), None)

    def text(self, memory_id: str) -> str | None:
        """What an entry says; None: it is gone."""
        entry = self.find(memory_id)
        return entry.wording.text if entry is not None else None

    def changes(self) -> list[Change]:
        """The history, oldest first."""
        return [change for _, change in sorted(self.known.changes.items()) if change is not None]

    def history(self, memory_id: str) -> list[Change]:
        """Changes of one entry, oldest first."""
        return [change for change in self.changes() if change.memory_id == memory_id]

    def last(self, memory_id: str) -> int:
        """Number of an entry's newest change."""
        return self.history(memory_id)[-1].number

    def texts(self) -> str:
        """All that is kept, as one string to search."""
        return repr((self.entries(), self.changes()))

    def edits(self) -> Edits:
        """For what is decided before a command."""
        return Edits(self.known)


def check(entries: list[Entry], changes: list[Change]) -> None:
    """Caps are kept, and the history of every entry is an unbroken chain that leads to what the entry says."""
    assert [change.number for change in changes] == list(range(1, len(changes) + 1))
    by_id = {entry.id: entry for entry in entries}
    assert len(by_id) == len(entries)
    for scope in {entry.scope for entry in entries}:
        pins = [entry.pinned for entry in entries if entry.scope == scope]
        assert sum(pins) <= 20
        assert len(pins) - sum(pins) <= 100
    newest: dict[str, int] = {}
    text: dict[str, Wording | None] = {}
    cleared = {change.memory_id for change in changes if change.action is Action.cleared}
    for change in changes:
        assert change.previous == (newest.get(change.memory_id, 0) if change.memory_id else 0)
        newest[change.memory_id] = change.number
        if change.taken_back or change.memory_id in cleared:
            assert (change.before, change.after) == (None, None)
        elif change.action in TEXT:
            assert change.before == text.get(change.memory_id)
            assert (change.after is None) == (change.action in (Action.deleted, Action.displaced))
            text[change.memory_id] = change.after
        else:
            assert (change.before, change.after) == (None, None)
    for memory_id in newest:
        if memory_id:
            entry = by_id.pop(memory_id, None)
            assert (entry.wording if entry else None) == text.get(memory_id)
    assert not by_id
