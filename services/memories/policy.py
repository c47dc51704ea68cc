"""Who may change what (M7, M8, O1). Pure; the same for commands and for a model's calls while it replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from pydantic import ValidationError

from schemas.errors import said
from schemas.memories import (
    GLOBAL,
    OP,
    Author,
    Delete,
    MemoryOps,
    Move,
    Op,
    Pin,
    Restore,
    Save,
    Unpin,
    Update,
    scope_of,
)
from services.memories import caps
from services.memories.state import SILENT, Change, Held, Known, Place

MODELS = (Author.character, Author.deep_memory)
"""Writers that are a model: they may change what models wrote, in their own scope and the global one."""

OPS = ("save", "update", "delete", "pin", "unpin", "move", "restore")

GONE = "id: no such entry"
NO_CHANGE = "change: no such change of a memory"
UNKNOWN = frozenset((GONE, NO_CHANGE))
"""Reasons of operations on what is not there."""

BESIDE = "op: another one of the command is refused"
"""Of operations that would be carried out, were they not together with one that is refused."""


class Entries(Protocol):
    """What a decision asks for; services.memories.edits.Edits is one."""

    def place(self, memory_id: str) -> Place | None:
        """Where an entry is or was."""

    def find(self, memory_id: str) -> Held | None:
        """An entry that is there."""

    def scope(self, scope: str) -> Mapping[str, Held]:
        """The entries of a scope."""

    def change(self, number: int) -> Change | None:
        """A change of the history."""

    def setting(self, character: str) -> str | None:
        """The setting of a character."""

    def home(self, scope: str) -> str:
        """Where what belongs into a scope goes."""


def parse(op: Mapping[str, Any]) -> Op | str:
    """An operation, or what is wrong with it: field and limit, never the text."""
    try:
        return OP.validate_python(op)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
    if problem["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return f"op: is none of {', '.join(OPS)}"
    path = ".".join(str(part) for part in problem["loc"][1:])
    return f"{path or 'op'}: {said(problem)}"[:300]


def parsed(command: MemoryOps, known: Known) -> list[Op | str]:
    """The operations of a command, or what is wrong with each; looked at once for what is known."""
    found = known.parsed.get(command.id)
    if found is None:
        found = known.parsed[command.id] = list(map(parse, command.ops))
    return found


def own_scope(command: MemoryOps) -> str:
    """Where the writer saves if it does not say where."""
    return scope_of(command.character) if command.character is not None else GLOBAL


def in_play(command: MemoryOps, setting: Callable[[str], str | None] = lambda _: None) -> tuple[str, ...]:
    """The scopes whose entries were in the chat's context (M4): of characters that are learned from."""
    characters = dict.fromkeys((*command.characters, *filter(None, (command.character,))))
    return (GLOBAL, *(scope_of(each) for each in characters if setting(each) not in SILENT))


def target(op: Save, command: MemoryOps, entries: Entries) -> str:
    """The scope that a save goes to."""
    return entries.home(op.scope or own_scope(command))


def check(op: Op, entries: Entries, command: MemoryOps) -> str | None:
    """Why an operation of a command is refused, in words that the writer can act on; None: it is not."""
    if command.by in MODELS:
        if command.character is not None and entries.setting(command.character) in SILENT:
            return "learning is off for this character"
        reason = _of_model(op, entries, command)
        if reason is not None:
            return reason
    match op:
        case Save():
            return _save(op, entries, command)
        case Restore():
            return _restore(op, entries)
        case Update() | Delete() | Unpin():
            return None if entries.find(op.id) is not None else GONE
        case Pin():
            found = entries.find(op.id)
            if found is None:
                return GONE
            return None if found.pinned else caps.no_pin_left(entries.scope(found.scope).values())
        case Move():
            return _move(op, entries)


_OTHER = "id: belongs to another character"


def _of_model(op: Op, entries: Entries, command: MemoryOps) -> str | None:
    if isinstance(op, Pin | Unpin | Move | Restore):
        return f"op: only the user can {op.op} a memory"
    if isinstance(op, Save):
        if op.pinned:
            return "pinned: only the user pins"
        if op.scope not in (None, GLOBAL, own_scope(command)):
            return "scope: belongs to another character"
        return None
    place, found = entries.place(op.id), entries.find(op.id)
    if place is None or found is None:
        return GONE
    if place.scope not in (GLOBAL, own_scope(command)):
        return _OTHER
    if found.pinned:
        return "id: this entry is pinned, only the user changes it"
    entry = found.entry()
    if Author.user in (entry.created_by, entry.wording.by):
        return "id: the user wrote this entry"
    if entry.wording.by is Author.character and entry.wording.character != command.character:
        return _OTHER
    return None


def _save(op: Save, entries: Entries, command: MemoryOps) -> str | None:
    if op.id is not None and entries.place(op.id) is not None:
        return "id: is taken"
    if op.pinned:
        return caps.no_pin_left(entries.scope(target(op, command, entries)).values())
    return None


def _move(op: Move, entries: Entries) -> str | None:
    found = entries.find(op.id)
    if found is None:
        return GONE
    scope = entries.home(op.scope)
    if scope == found.scope or not found.pinned:
        return None
    return caps.no_pin_left(entries.scope(scope).values())


def _restore(op: Restore, entries: Entries) -> str | None:
    change = entries.change(op.change)
    if change is None or not change.memory_id:
        return NO_CHANGE
    if change.before is None:
        return "change: it replaced nothing, or its text is gone for good"
    place = entries.place(change.memory_id)
    assert place is not None
    if place.scope or not place.pinned:
        return None
    return caps.no_pin_left(entries.scope(entries.home(place.gone_from)).values())


def repeats(likeness: bytes, entries: Entries, scopes: Iterable[str], of: str | None = None) -> Held | None:
    """The entry in these scopes, other than `of`, that a text like this merely repeats."""
    for scope in scopes:
        for held in entries.scope(scope).values():
            if held.likeness == likeness and held.id != of:
                return held
    return None
