"""The checks of a user's saved memories: caps, one place for each entry, an unbroken history, pins left alone
(M3, M8, M9, M11)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise

from schemas import limits
from schemas.memories import Author, scope_of
from services.audit.report import Check, Finding, Severity
from services.audit.user import Trace, UserSnapshot
from services.memories.needs import fields_of
from services.memories.state import DELETED, TEXT, Action
from services.memories.store import REMEMBERED

_MODELS = (Author.character, Author.deep_memory)
_ENDS = (Action.deleted, Action.displaced, Action.cleared, Action.restored)


def check_user(user: UserSnapshot, *, at_rest: bool) -> Iterator[Finding]:
    """Everything that one moment's memories show."""
    parts: dict[Check, tuple[Callable[[UserSnapshot], Iterator[str]], ...]] = {
        Check.memories: (caps, pins, places, heads, commands),
        Check.history: (numbers, chains, texts),
        Check.taken_back: (quoted,),
        Check.journal: (journals, noted),
    }
    for name, checks in parts.items():
        for part in checks:
            for detail in part(user):
                yield Finding("", name, detail, user=user.user)
    if user.outbox:
        severity = Severity.error if at_rest else Severity.warning
        yield Finding("", Check.outbox, f"{user.outbox} results are not confirmed", severity, user.user)


def caps(user: UserSnapshot) -> Iterator[str]:
    """A scope holds at most 100 unpinned entries and 20 pins, an entry at most 500 characters (M3)."""
    counts = Counter((entry.scope, entry.pinned) for entry in user.entries)
    for (scope, pinned), count in sorted(counts.items()):
        limit = limits.MEMORIES_PINNED if pinned else limits.MEMORIES_UNPINNED
        if count > limit:
            yield f"{scope} has {count} {'pins' if pinned else 'unpinned entries'}, the limit is {limit}"
    for entry in user.entries:
        if not 0 < entry.characters <= limits.MEMORY_CHARACTERS:
            yield f"entry {entry.id} has {entry.characters} characters, the limit is {limits.MEMORY_CHARACTERS}"


def pins(user: UserSnapshot) -> Iterator[str]:
    """What was pinned is pinned until the user unpins or ends it, and meanwhile neither the AI nor a take-back changes it
    (M8). How an entry was when it was saved or restored the history does not say."""
    pinned_now = {entry.id: entry.pinned for entry in user.entries}
    for memory_id, changes in user.histories.items():
        pinned: bool | None = None
        for change in changes:
            if pinned and (change.by in _MODELS or change.action is Action.taken_back):
                yield f"change {change.number} ({change.action}) of {memory_id} was made while it was pinned"
            if change.action in (Action.pinned, Action.unpinned):
                pinned = change.action is Action.pinned
            elif change.action in _ENDS:
                pinned = None
        if pinned is not None and pinned_now.get(memory_id, False) is not pinned:
            yield f"entry {memory_id} is {'not ' if pinned else ''}pinned, its history says otherwise"


def places(user: UserSnapshot) -> Iterator[str]:
    """Each entry is in one scope, which the index of places says too; of what is gone it says where it was."""
    found: dict[str, str] = {}
    deleted = {scope_of(name) for name, value in user.settings.items() if value in DELETED}
    for entry in user.entries:
        if entry.id in found:
            yield f"entry {entry.id} is in {found[entry.id]} and in {entry.scope}"
        found[entry.id] = entry.scope
        place = user.places.get(entry.id)
        if place is None:
            yield f"entry {entry.id} of {entry.scope} is not in the index"
        elif (place.scope, place.newest) != (entry.scope, entry.newest):
            says = f"{place.scope or 'gone'}, change {place.newest}"
            yield f"entry {entry.id} is in {entry.scope}, change {entry.newest}; the index says {says}"
        if entry.scope in deleted:
            yield f"entry {entry.id} is in {entry.scope}, whose character was deleted"
    for memory_id, place in user.places.items():
        if place.scope and memory_id not in found:
            yield f"entry {memory_id} is not in {place.scope}, where the index has it"
        if not place.scope and not place.gone_from:
            yield f"entry {memory_id} is gone, and the index does not say from where"


def heads(user: UserSnapshot) -> Iterator[str]:
    """What an entry's head says of it is what it is: it is chosen by its head alone."""
    for entry in user.entries:
        if (entry.order, entry.tokens, entry.alike) != (entry.mark.order, entry.measured, True):
            yield f"the head of entry {entry.id} is not that of its text"


def commands(user: UserSnapshot) -> Iterator[str]:
    """The remembered results, and the order in which they are forgotten."""
    if len(user.ordered) > REMEMBERED:
        yield f"{len(user.ordered)} commands are remembered, the limit is {REMEMBERED}"
    if user.commands != set(user.ordered) or len(user.commands) != len(user.ordered):
        yield f"{len(user.commands)} results are remembered, in an order of {len(user.ordered)}"


def numbers(user: UserSnapshot) -> Iterator[str]:
    """The changes are numbered from 1 without a gap."""
    missing = sorted(set(range(1, user.newest + 1)) - user.changes.keys())
    if missing:
        yield f"{len(missing)} of {user.newest} changes are missing, the first is {missing[0]}"
    beyond = sorted(number for number in user.changes if not 1 <= number <= user.newest)
    if beyond:
        yield f"change {beyond[0]} is in the history, the newest is {user.newest}"


def chains(user: UserSnapshot) -> Iterator[str]:
    """Each change names the one of its entry before, from the newest one, that the index knows, back to its creation."""
    for memory_id, changes in user.histories.items():
        if not memory_id:
            continue
        place = user.places.get(memory_id)
        if place is None:
            yield f"changes of {memory_id}, which the index does not know"
        elif place.newest != changes[-1].number:
            yield f"the newest change of {memory_id} is {changes[-1].number}, the index says {place.newest}"
        if changes[0].previous or changes[0].action is not Action.created:
            yield f"the history of {memory_id} begins with change {changes[0].number}, which did not create it"
        for before, after in pairwise(changes):
            if after.previous != before.number:
                yield f"change {after.number} of {memory_id} names {after.previous} as the one before, it is {before.number}"
    for memory_id in user.places.keys() - user.histories.keys():
        yield f"entry {memory_id} has no history"


def texts(user: UserSnapshot) -> Iterator[str]:
    """Each change of a text that stands goes on from where the one before ended, up to what the entry says now."""
    current = {entry.id: entry.mark for entry in user.entries}
    for memory_id, changes in user.histories.items():
        if any(change.action is Action.cleared for change in changes):
            quoting = [change.number for change in changes if change.before or change.after]
            if quoting or memory_id in current:
                yield f"{memory_id} was cleared, and its text is still there ({quoting or 'its entry'})"
            continue
        text = None
        for change in changes:
            if not change.sets_text:
                continue
            if change.before != text:
                yield f"change {change.number} of {memory_id} does not go on from the one before"
            text = change.after
        if memory_id and current.get(memory_id) != text:
            yield f"entry {memory_id} does not say what its history ends with"


def quoted(user: UserSnapshot) -> Iterator[str]:
    """Nothing keeps a wording that was taken back (M9)."""
    gone = {change.number for change in user.changes.values() if change.taken_back}
    for entry in user.entries:
        if entry.mark.order in gone:
            yield f"entry {entry.id} says what change {entry.mark.order} wrote, which was taken back"
    for change in user.changes.values():
        if change.taken_back and (change.before or change.after):
            yield f"change {change.number} was taken back and still has a text"
        for mark in (change.before, change.after):
            if mark is not None and mark.order in gone and not change.taken_back:
                yield f"change {change.number} keeps what change {mark.order} wrote, which was taken back"


def journals(user: UserSnapshot) -> Iterator[str]:
    """What a journal names are changes of texts that came from where it says.

    One that was taken back may still be named, where it came from a message of another turn: it is skipped.
    """
    for chat, fields in user.journals.items():
        for name, listed in fields.items():
            where = f"the journal of chat {chat}, {name.strip() or 'without a turn'}"
            if list(listed) != sorted(set(listed)):
                yield f"{where}: the changes are not in order"
            for number in listed:
                change = user.changes.get(number)
                if change is None:
                    yield f"{where}: there is no change {number}"
                elif not _from(change, chat, name):
                    yield f"{where}: change {number} did not come from there"


def _from(change: Trace, chat: str, field: str) -> bool:
    source = change.source
    if source is None or source.chat != chat or change.action not in TEXT:
        return False
    return field in fields_of(source.turn, source.messages)


def noted(user: UserSnapshot) -> Iterator[str]:
    """What a turn wrote is in its journal. Only of an entry that was pinned it may stay, when its turn goes (M8)."""
    for change in user.of_turns():
        source = change.source
        assert source is not None
        journal = user.journals.get(source.chat, {})
        for name in fields_of(source.turn, source.messages):
            if change.number not in journal.get(name, ()) and not user.ever_pinned(change.memory_id):
                yield f"change {change.number} of turn {source.turn} in chat {source.chat} is in no journal"
                break
