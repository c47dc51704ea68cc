"""What has to be read before a command can be decided. Pure.

What is needed first may tell of more (an entry's scope, a change's entry): `missing` is asked until it names nothing.
Nothing here grows with the history. Only taking back and clearing read in it, as far back as what they undo.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.memories import (
    GLOBAL,
    CharacterDeleted,
    MemoryClear,
    MemoryCommand,
    MemoryOps,
    MemoryRollback,
    MemorySettings,
    Move,
    Op,
    Restore,
    Save,
    character_of,
    scope_of,
)
from services.memories import operations, policy, undo
from services.memories.state import DELETED, Known


@dataclass(slots=True)
class Needs:
    """Scopes, places of entries, changes, fields of a chat's journal (None: all), histories down to a change."""

    scopes: set[str] = field(default_factory=set)
    ids: set[str] = field(default_factory=set)
    changes: set[int] = field(default_factory=set)
    journal: str = ""
    fields: set[str] | None = field(default_factory=set)
    walks: dict[str, int] = field(default_factory=dict)
    settings: bool = False

    def __bool__(self) -> bool:
        found = self.scopes or self.ids or self.changes or self.walks or self.fields or self.settings
        return bool(found) or self.fields is None


class Also(NamedTuple):
    """Scopes that a reader wants besides."""

    scopes: tuple[str, ...] = ()


def missing(command: MemoryCommand | Also, known: Known) -> Needs:
    """What the command needs and is not known yet."""
    needs = Needs()
    match command:
        case Also():
            needs.scopes.update(command.scopes)
        case MemoryOps():
            _ops(command, known, needs)
        case MemoryRollback():
            _rollback(command, known, needs)
        case MemoryClear():
            needs.scopes.add(command.scope)
            held = known.scopes.get(command.scope, {}).values()
            needs.walks.update((entry.id, 0) for entry in held if entry.pinned == command.pinned)
        case CharacterDeleted():
            needs.scopes |= {GLOBAL, scope_of(command.character)}
        case MemorySettings():
            pass
    return _unknown(needs, known)


def _ops(command: MemoryOps, known: Known, needs: Needs) -> None:
    if command.by in policy.MODELS:
        needs.scopes.update(policy.in_play(command))
    for index, op in enumerate(policy.parsed(command, known)):
        if not isinstance(op, str):
            _op(op, command, index, needs)
    if operations.journaled(command):
        assert command.source is not None
        needs.journal, needs.fields = command.source.chat, set(_journal_fields(command, known))
    for number in needs.changes:
        change = known.changes.get(number)
        if change is not None and change.memory_id:
            needs.ids.add(change.memory_id)
    _places(needs.ids, known, needs)
    for scope in tuple(needs.scopes):
        needs.scopes.add(_home(scope, known))


def _op(op: Op, command: MemoryOps, index: int, needs: Needs) -> None:
    match op:
        case Restore():
            needs.changes.add(op.change)
        case Save():
            needs.ids.add(op.id or operations.new_id(command.user_id, command.id, index))
            needs.scopes.add(op.scope or policy.own_scope(command))
        case Move():
            needs.ids.add(op.id)
            needs.scopes.add(op.scope)
        case _:
            needs.ids.add(op.id)


def _journal_fields(command: MemoryOps, known: Known) -> Iterable[str]:
    """Fields of its chat's journal in which the changes of a command may be noted."""
    source = command.source
    assert source is not None
    messages = dict.fromkeys(source.messages)
    for op in policy.parsed(command, known):
        if not isinstance(op, str) and (of_op := getattr(op, "source", None)) is not None:
            messages.update(dict.fromkeys(of_op.messages))
    return fields_of(source.turn, tuple(messages))


def fields_of(turn: str | None, messages: Iterable[str]) -> tuple[str, ...]:
    """Fields of the journal for what comes from a turn and from these messages; '' where neither is known."""
    fields = (*(() if turn is None else (turn,)), *map(undo.message_field, messages))
    return fields or ("",)


def _rollback(command: MemoryRollback, known: Known, needs: Needs) -> None:
    needs.journal = command.chat_id
    needs.fields = None if undo.whole(command) else set(undo.fields_of(command))
    needs.changes |= undo.numbers(command, known.journals.get(command.chat_id, {}))
    oldest: dict[str, int] = {}
    for number in needs.changes:
        change = known.changes.get(number)
        if change is not None and not change.taken_back and undo.meant(command, change.source):
            oldest[change.memory_id] = min(number, oldest.get(change.memory_id, number))
            needs.scopes.add(_home(change.scope, known))
    needs.ids.update(oldest)
    needs.walks.update(oldest)
    _places(oldest, known, needs)


def _places(memory_ids: Iterable[str], known: Known, needs: Needs) -> None:
    for memory_id in memory_ids:
        place = known.places.get(memory_id)
        if place is not None:
            needs.scopes.add(place.scope or _home(place.gone_from, known))


def _home(scope: str, known: Known) -> str:
    character = character_of(scope)
    return GLOBAL if character is not None and known.settings.get(character) in DELETED else scope


def _unknown(needs: Needs, known: Known) -> Needs:
    needs.scopes -= known.scopes.keys()
    needs.ids -= known.places.keys()
    needs.changes -= known.changes.keys()
    needs.walks = {
        memory_id: stop
        for memory_id, stop in needs.walks.items()
        if stop < known.walked.get(memory_id, stop + 1)
    }
    if needs.fields is None:
        needs.fields = set() if needs.journal in known.whole_journals else None
    else:
        needs.fields -= known.journals.get(needs.journal, {}).keys()
    return needs
