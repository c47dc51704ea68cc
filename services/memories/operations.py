"""What an operation does. Pure; whether it may is decided in policy.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from schemas.memories import (
    Author,
    Delete,
    MemoryOps,
    Move,
    Op,
    OpResult,
    Pin,
    Restore,
    Save,
    Source,
    Status,
    Unpin,
    Update,
)
from services.memories import echo, policy
from services.memories.edits import Edits, Writer
from services.memories.injection import measured
from services.memories.state import Action, Entry, Held, Origin, Wording, milliseconds
from services.state import ids


class Done(NamedTuple):
    """What an operation has come to."""

    status: Status
    memory_id: str | None = None
    change: int | None = None
    displaced: str | None = None


class Operations:
    """The operations of one command, in their order. `count` is the counter of tokens."""

    def __init__(self, edits: Edits, command: MemoryOps, count: Callable[[str], int]) -> None:
        self._edits = edits
        self._command = command
        self._count = count
        self._at = milliseconds(command.at)
        self._arrived: dict[str, dict[str, Writer]] = {}

    def run(self) -> list[OpResult]:
        """One result per operation."""
        ops = policy.parsed(self._command, self._edits.known)
        results = [self._one(index, op) for index, op in enumerate(ops)]
        self._room(results)
        return results

    def _room(self, results: list[OpResult]) -> None:
        """Makes room for what has arrived together: what goes on to another scope, or is pinned next, needs none."""
        last = {result.memory_id: place for place, result in enumerate(results)}
        for scope, arrived in self._arrived.items():
            *_, writer = arrived.values()
            entries = self._edits.scope(scope)
            ended = [each for each in arrived if each in entries and not entries[each].pinned]
            for memory_id, gone in zip(ended, self._edits.make_room(scope, writer, stay=ended), strict=False):
                place = last[memory_id]
                results[place] = results[place].model_copy(update={"displaced": gone})

    def _one(self, index: int, op: Op | str) -> OpResult:
        raw = self._command.ops[index]
        # what is no operation may be anything that a model wrote: a result has no text
        name = raw["op"] if raw.get("op") in policy.OPS else ""
        reason = op if isinstance(op, str) else policy.check(op, self._edits, self._command)
        if isinstance(op, str) or reason is not None:
            named = raw.get("id") if isinstance(raw.get("id"), str) else None
            known = named if named is not None and self._edits.place(named) is not None else None
            return OpResult(op=name, status=Status.refused, memory_id=known, reason=reason)
        done = self._apply(op, index)
        return OpResult(
            op=name,
            status=done.status,
            memory_id=done.memory_id,
            change=done.change,
            displaced=done.displaced,
        )

    def _apply(self, op: Op, index: int) -> Done:
        match op:
            case Save():
                return self._save(op, index)
            case Restore():
                return self._restore(op)
        held = self._edits.find(op.id)
        assert held is not None
        match op:
            case Update():
                return self._update(op, held)
            case Delete():
                return Done(
                    Status.applied, op.id, self._edits.end(Action.deleted, op.id, self._writer(op.source))
                )
            case Pin() | Unpin():
                return self._pin(held, isinstance(op, Pin))
            case Move():
                return self._move(held, self._edits.home(op.scope))

    def _save(self, op: Save, index: int) -> Done:
        command, edits = self._command, self._edits
        repeated = self._echo(op.text)
        if repeated is not None:
            return Done(Status.echo, repeated.id)
        memory_id = op.id or new_id(command.user_id, command.id, index)
        if edits.place(memory_id) is not None:
            # the command was here before, longer ago than commands are remembered
            return Done(Status.unchanged, memory_id)
        scope, writer = policy.target(op, command, edits), self._writer(op.source)
        wording = self._wording(memory_id, op.text, writer)
        change = edits.record(Action.created, memory_id, scope, writer, after=wording)
        edits.put(Entry(memory_id, scope, op.pinned, wording, 1, self._at, command.by))
        return self._settled(memory_id, change, scope, writer)

    def _update(self, op: Update, held: Held) -> Done:
        entry, writer = held.entry(), self._writer(op.source)
        if entry.wording.text == op.text:
            return Done(Status.unchanged, op.id)
        # how the entry itself is written may be what is to be corrected
        repeated = self._echo(op.text, op.id)
        if repeated is not None:
            return Done(Status.echo, repeated.id)
        wording = self._wording(op.id, op.text, writer)
        change = self._edits.record(
            Action.edited, op.id, entry.scope, writer, before=entry.wording, after=wording
        )
        self._edits.put(entry._replace(wording=wording, version=entry.version + 1))
        return Done(Status.applied, op.id, change)

    def _pin(self, held: Held, pinned: bool) -> Done:
        if held.pinned == pinned:
            return Done(Status.unchanged, held.id)
        entry, writer = held.entry(), self._writer(None)
        change = self._edits.record(Action.pinned if pinned else Action.unpinned, held.id, held.scope, writer)
        self._edits.put(entry._replace(pinned=pinned, version=entry.version + 1))
        return self._settled(held.id, change, held.scope, writer)

    def _move(self, held: Held, scope: str) -> Done:
        if held.scope == scope:
            return Done(Status.unchanged, held.id)
        entry, writer = held.entry(), self._writer(None)
        change = self._edits.record(Action.moved, held.id, scope, writer, from_scope=held.scope)
        self._edits.put(entry._replace(scope=scope, version=entry.version + 1))
        return self._settled(held.id, change, scope, writer)

    def _restore(self, op: Restore) -> Done:
        edits, writer = self._edits, self._writer(None)
        old = edits.change(op.change)
        assert old is not None
        assert old.before is not None
        memory_id, held = old.memory_id, edits.find(old.memory_id)
        if held is not None:
            entry = held.entry()
            current: Wording | None = entry.wording
            if entry.wording.text == old.before.text:
                return Done(Status.unchanged, memory_id)
        else:
            place = edits.place(memory_id)
            assert place is not None
            scope, current = edits.home(place.gone_from), None
            entry = Entry(
                memory_id,
                scope,
                place.pinned,
                old.before,
                place.version,
                place.created_at,
                place.created_by,
            )
        # who wrote it, and from what, stays; that it is up to date is new
        wording = old.before._replace(at=self._at, order=edits.number + 1)
        change = edits.record(Action.restored, memory_id, entry.scope, writer, before=current, after=wording)
        edits.put(entry._replace(wording=wording, version=entry.version + 1))
        return self._settled(memory_id, change, entry.scope, writer)

    def _settled(self, memory_id: str, change: int, scope: str, writer: Writer) -> Done:
        if self._command.together:
            self._arrived.setdefault(scope, {})[memory_id] = writer
            return Done(Status.applied, memory_id, change)
        displaced = self._edits.make_room(scope, writer, stay=(memory_id,))
        return Done(Status.applied, memory_id, change, displaced[0] if displaced else None)

    def _echo(self, text: str, of: str | None = None) -> Held | None:
        command = self._command
        if command.by not in policy.MODELS:
            return None
        scopes = policy.in_play(command, self._edits.setting)
        return policy.repeats(echo.likeness(text), self._edits, scopes, of)

    def _writer(self, source: Source | None) -> Writer:
        command = self._command
        return Writer(command.by, command.id, self._at, command.character, origin(source, command))

    def _wording(self, memory_id: str, text: str, writer: Writer) -> Wording:
        tokens = measured(memory_id, text, self._count)
        return Wording(
            text, writer.by, writer.character, self._at, self._edits.number + 1, writer.source, tokens
        )


def origin(source: Source | None, command: MemoryOps) -> Origin | None:
    """Where a change comes from. A model says at most from which messages: its chat and turn are the command's."""
    own = command.source
    if source is None or (own is None and command.by in policy.MODELS):
        source = own
    if source is None:
        return None
    if own is not None and command.by in policy.MODELS:
        return Origin(own.chat, own.turn, source.messages)
    return Origin(source.chat, source.turn, source.messages)


def new_id(user: str, command: str, index: int) -> str:
    """The id of an entry that was given none: that of the operation by its place in the command."""
    return "mem-" + ids.derive("memory", user, command, index).replace("-", "")[:12]


def journaled(command: MemoryOps) -> bool:
    """Whether its changes are taken back with the turn, or the messages, they came from (M9)."""
    return command.by in (Author.character, Author.deep_memory) and command.source is not None
