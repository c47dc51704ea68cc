"""A command and what is known -> what is to be stored. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import NamedTuple

from schemas.memories import (
    Author,
    CharacterDeleted,
    MemoryChanged,
    MemoryClear,
    MemoryCommand,
    MemoryOps,
    MemoryRollback,
    MemorySettings,
    OpResult,
    Status,
)
from services.memories import needs, policy, scopes, undo
from services.memories.edits import Edits, Writer
from services.memories.operations import Operations, journaled
from services.memories.scopes import Whole
from services.memories.state import TEXT, Known, Origin, milliseconds
from services.state import ids


class Outcome(NamedTuple):
    """`journal` is what the fields of one chat's journal are from now on, None: gone."""

    result: MemoryChanged
    edits: Edits
    chat: str | None
    journal: Mapping[str, tuple[int, ...] | None]


def decide(command: MemoryCommand, known: Known, count: Callable[[str], int], now: datetime) -> Outcome:
    """What a command comes to. `known` has to have what services/memories/needs.py asks for; it is not changed."""
    edits = Edits(known)
    by = _author(command)
    at = milliseconds(command.at)
    chat, journal = None, {}
    match command:
        case MemoryOps():
            whole = Whole(Operations(edits, command, count).run())
            if command.together and any(result.status is Status.refused for result in whole.results):
                edits, whole = Edits(known), Whole(list(map(_refused_too, whole.results)))
            if journaled(command) and edits.changes:
                assert command.source is not None
                chat = command.source.chat
                journal = _noted(edits, chat)
        case MemoryRollback():
            writer = Writer(by, command.id, at, None, Origin(command.chat_id))
            whole = Whole(undo.taken_back(edits, command, writer))
            chat, journal = command.chat_id, _forgotten(command, edits)
        case MemoryClear():
            whole = scopes.clear(edits, command, Writer(by, command.id, at))
        case MemorySettings():
            whole = scopes.settings(edits, command, Writer(by, command.id, at, command.character))
        case CharacterDeleted():
            whole = scopes.globalise(edits, command, Writer(by, command.id, at, command.character))
    changed = edits.number > known.number or bool(edits.settings)
    result = MemoryChanged(
        id=ids.derive("memory.changed", command.user_id, command.id),
        at=now,
        user_id=command.user_id,
        command_id=command.id,
        command=command.type,
        by=by,
        version=known.version + changed,
        results=tuple(whole.results),
        kept_pins=whole.kept_pins,
        notice=whole.notice,
    )
    return Outcome(result, edits, chat, journal)


def _refused_too(result: OpResult) -> OpResult:
    """Of an operation beside one that is refused, where they go together."""
    if result.status is Status.refused:
        return result
    return OpResult(op=result.op, status=Status.refused, reason=policy.BESIDE)


def _author(command: MemoryCommand) -> Author:
    if isinstance(command, MemoryOps):
        return command.by
    return Author.user if isinstance(command, MemoryClear | MemorySettings) else Author.system


def _noted(edits: Edits, chat: str) -> dict[str, tuple[int, ...] | None]:
    """The journal's fields with the changes that a command has made."""
    journal = edits.known.journals.get(chat, {})
    noted: dict[str, tuple[int, ...] | None] = {}
    for change in edits.changes.values():
        if change.number > edits.known.number and change.action in TEXT and change.source is not None:
            for field in needs.fields_of(change.source.turn, change.source.messages):
                before = noted.get(field) or journal.get(field, ())
                noted[field] = (*before, change.number)
    return noted


def _forgotten(command: MemoryRollback, edits: Edits) -> dict[str, tuple[int, ...] | None]:
    """The journal's fields without the changes that are settled, taken back or not."""
    journal = edits.known.journals.get(command.chat_id, {})
    fields = journal if undo.whole(command) else undo.fields_of(command)
    left: dict[str, tuple[int, ...] | None] = {}
    for field in fields:
        if field not in journal or not journal[field]:
            continue
        stays = []
        for number in journal[field]:
            change = edits.change(number)
            if change is not None and not change.taken_back and not undo.meant(command, change.source):
                stays.append(number)
        left[field] = tuple(stays) or None
    return left
