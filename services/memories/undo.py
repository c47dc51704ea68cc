"""Taking back (M9): what changes of turns that are gone have done to entries is undone. Pure.

Each change of a text goes from `before` to `after`, and the entry's next one goes on from there: a chain. A change
is taken out of its chain. Where a later one has set or ended the text, that one wins, and goes on from `before` now.
Where there is none, `before` is the entry's text again, as it was; or the entry goes, where there was none before. In
the same way an entry that was deleted or displaced is there again.

What is pinned now is left alone (M8). Where an entry stands now does not matter: it goes, or gets its text, there.
An entry that comes back into a full scope displaces the least recently updated one, which it may be itself. The text
of a change that is taken back leaves the history: nothing quotes it any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from schemas.memories import MemoryRollback, OpResult, Status
from services.memories.edits import Edits, Writer
from services.memories.state import TEXT, Action, Change, Entry, Origin, Wording

TAKE_BACK = "take_back"
"""Name of the operation in results."""


def numbers(rollback: MemoryRollback, journal: Mapping[str, Iterable[int]]) -> set[int]:
    """Changes that a rollback may take back, by the journal of its chat."""
    fields = journal if whole(rollback) else fields_of(rollback)
    return {number for field in fields for number in journal.get(field, ())}


def whole(rollback: MemoryRollback) -> bool:
    """Whether all that the chat has written is taken back."""
    return rollback.turns is None and rollback.messages is None


def fields_of(rollback: MemoryRollback) -> tuple[str, ...]:
    """Fields of the chat's journal that a rollback asks for; `whole` ones ask for all of them."""
    return (*(rollback.turns or ()), *map(message_field, rollback.messages or ()))


def message_field(message: str) -> str:
    """The journal's field of what came from a message. No turn's id has a space."""
    return f" {message}"


def meant(rollback: MemoryRollback, source: Origin | None) -> bool:
    """Whether a change of the journal that comes from `source` is taken back."""
    if rollback.messages is None or source is None or not source.messages:
        return True
    return not set(source.messages).isdisjoint(rollback.messages)


def taken_back(edits: Edits, rollback: MemoryRollback, writer: Writer) -> list[OpResult]:
    """Take back what a rollback names, newest first; one result per entry that it affected.

    `edits` has to know what services/memories/needs.py asks for.
    """
    known = edits.known
    affected: dict[str, str] = {}
    for number in sorted(numbers(rollback, known.journals.get(rollback.chat_id, {})), reverse=True):
        change = edits.change(number)
        if change is None or change.taken_back or change.action not in TEXT:
            continue
        if change.before is None and change.after is None:
            # its entry was cleared, or what it ended has gone already
            continue
        held = edits.find(change.memory_id)
        if (held is None or not held.pinned) and meant(rollback, change.source):
            _take_out(edits, change)
            affected[change.memory_id] = change.scope
    results = []
    scopes = set()
    for memory_id in sorted(affected):
        place = edits.place(memory_id)
        assert place is not None
        recorded = edits.record(
            Action.taken_back, memory_id, place.scope or edits.home(affected[memory_id]), writer
        )
        results.append(OpResult(op=TAKE_BACK, status=Status.applied, memory_id=memory_id, change=recorded))
        scopes.add(place.scope)
    for scope in sorted(scopes - {""}):
        edits.make_room(scope, writer)
    return results


def _take_out(edits: Edits, change: Change) -> None:
    later = edits.next_text(change)
    if later is not None:
        edits.rewrite(later._replace(before=change.before))
    else:
        _reset(edits, change.memory_id, change.before)
    edits.rewrite(change._replace(taken_back=True, before=None, after=None))


def _reset(edits: Edits, memory_id: str, wording: Wording | None) -> None:
    held = edits.find(memory_id)
    if wording is None:
        if held is not None:
            edits.drop(memory_id)
    elif held is not None:
        entry = held.entry()
        edits.put(entry._replace(wording=wording, version=entry.version + 1))
    else:
        place = edits.place(memory_id)
        assert place is not None
        scope = edits.home(place.gone_from)
        edits.put(
            Entry(memory_id, scope, False, wording, place.version + 1, place.created_at, place.created_by)
        )
