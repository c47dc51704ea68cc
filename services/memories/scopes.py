"""What is done to a scope as a whole: cleared (M10), made global (M5), learned from or not (O1). Pure."""

from __future__ import annotations

from typing import NamedTuple

from schemas import limits
from schemas.memories import (
    GLOBAL,
    CharacterDeleted,
    MemoryClear,
    MemorySettings,
    OpResult,
    Status,
    scope_of,
)
from services.memories import caps
from services.memories.edits import Edits, Writer
from services.memories.state import DELETED, GONE, GONE_OFF, OFF, Action


class Whole(NamedTuple):
    """Results, the pins that a scope still has after it was cleared, and what the owner should know."""

    results: list[OpResult]
    kept_pins: int | None = None
    notice: str | None = None


def clear(edits: Edits, command: MemoryClear, writer: Writer) -> Whole:
    """Unpinned entries go, or pins do; their texts leave the history as well. One result per entry."""
    entries = edits.scope(command.scope)
    pins = caps.pins(entries.values())
    if command.pinned and command.expected != pins:
        reason = f"expected: the scope has {pins} pins; repeat the call with this number to clear them"
        return Whole([OpResult(op="clear", status=Status.refused, reason=reason)], pins)
    gone = sorted(key for key, held in entries.items() if held.pinned == command.pinned)
    results = []
    for memory_id in gone:
        edits.drop(memory_id)
        for change in edits.history(memory_id):
            if change.before is not None or change.after is not None:
                edits.rewrite(change._replace(before=None, after=None))
        number = edits.record(Action.cleared, memory_id, command.scope, writer)
        results.append(OpResult(op="clear", status=Status.applied, memory_id=memory_id, change=number))
    return Whole(results or [OpResult(op="clear", status=Status.unchanged)], 0 if command.pinned else pins)


def settings(edits: Edits, command: MemorySettings, writer: Writer) -> Whole:
    """Learning from chats with a character is switched."""
    op, current = "settings", edits.setting(command.character)
    if current in DELETED:
        reason = "character: it was deleted"
        return Whole([OpResult(op=op, status=Status.refused, reason=reason)])
    if (current != OFF) == command.learn_from_chat:
        return Whole([OpResult(op=op, status=Status.unchanged)])
    action = Action.learning_on if command.learn_from_chat else Action.learning_off
    edits.settings[command.character] = None if command.learn_from_chat else OFF
    number = edits.record(action, "", scope_of(command.character), writer)
    return Whole([OpResult(op=op, status=Status.applied, change=number)])


def globalise(edits: Edits, command: CharacterDeleted, writer: Writer) -> Whole:
    """The memories of a deleted character become global, the newest first while there is room.

    What is global already stays. What finds no room is displaced: the history has it, and it can be restored.
    """
    setting = edits.setting(command.character)
    if setting not in DELETED:
        # what was said of learning holds for its old chats
        edits.settings[command.character] = GONE_OFF if setting == OFF else GONE
    scope = scope_of(command.character)
    room = {
        True: limits.MEMORIES_PINNED - caps.pins(edits.scope(GLOBAL).values()),
        False: limits.MEMORIES_UNPINNED - sum(not held.pinned for held in edits.scope(GLOBAL).values()),
    }
    results, without = [], 0
    for held in sorted(edits.scope(scope).values(), key=caps.age, reverse=True):
        if room[held.pinned] > 0:
            room[held.pinned] -= 1
            entry = held.entry()
            number = edits.record(Action.globalised, held.id, GLOBAL, writer, from_scope=scope)
            edits.put(entry._replace(scope=GLOBAL, version=entry.version + 1))
        else:
            without += 1
            number = edits.end(Action.displaced, held.id, writer)
        results.append(OpResult(op="globalise", status=Status.applied, memory_id=held.id, change=number))
    notice = None
    if without:
        notice = (
            f"{without} {'memory' if without == 1 else 'memories'} of a deleted character found no room among "
            f"the global ones. The history has {'it' if without == 1 else 'them'}; each can be restored."
        )
    return Whole(results or [OpResult(op="globalise", status=Status.unchanged)], None, notice)
