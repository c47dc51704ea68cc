"""Saved memories as a panel sees them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from schemas import limits
from schemas.memories import Source, character_of
from schemas.saved_memories import (
    ChangeView,
    CharacterSettings,
    MemoriesView,
    SavedMemory,
    ScopeView,
    WordingView,
)
from services.gateway.memory_reading import Listed
from services.memories import caps
from services.memories.state import DELETED, SILENT, Change, Entry, Held, Origin, Wording, moment

RECENT = timedelta(days=limits.MEMORY_RECENT_DAYS)


def memory(entry: Entry, now: datetime) -> SavedMemory:
    """One entry."""
    wording = entry.wording
    updated = moment(wording.at)
    return SavedMemory(
        id=entry.id,
        scope=entry.scope,
        text=wording.text,
        pinned=entry.pinned,
        recent=now - updated <= RECENT,
        by=wording.by,
        character=wording.character,
        created_at=moment(entry.created_at),
        created_by=entry.created_by,
        updated_at=updated,
        version=entry.version,
        source=_source(wording.source),
    )


def memories(user: str, listed: Listed, character: str | None, now: datetime) -> MemoriesView:
    """All entries, pins first, each newest first."""
    held = [each for entries in listed.scopes.values() for each in entries.values()]
    held.sort(key=lambda each: (each.pinned, each.order, each.id), reverse=True)
    return MemoriesView(
        user_id=user,
        version=listed.version,
        memories=tuple(memory(each.entry(), now) for each in held),
        scopes=tuple(scope(name, entries) for name, entries in listed.scopes.items()),
        learn_from_chat=None if character is None else character not in listed.off,
        learning_off=tuple(sorted(listed.off)),
    )


def scope(name: str, entries: Mapping[str, Held]) -> ScopeView:
    """How full it is."""
    pinned = caps.pins(entries.values())
    return ScopeView(scope=name, pinned=pinned, unpinned=len(entries) - pinned)


def character_asked(scope: str | None, character: str | None) -> str | None:
    """Whose switch is asked for along with the memories."""
    return character if character is not None else character_of(scope) if scope is not None else None


def settings(character: str, stored: str | None) -> CharacterSettings:
    """From the setting as stored."""
    return CharacterSettings(
        character=character, learn_from_chat=stored not in SILENT, deleted=stored in DELETED
    )


def change(of: Change) -> ChangeView:
    """One change of the history."""
    return ChangeView(
        number=of.number,
        at=moment(of.at),
        action=of.action,
        memory_id=of.memory_id or None,
        by=of.by,
        character=of.character,
        source=_source(of.source),
        command_id=of.command,
        scope=of.scope,
        from_scope=of.from_scope,
        before=_wording(of.before),
        after=_wording(of.after),
        taken_back=of.taken_back,
        restorable=of.before is not None and bool(of.memory_id),
    )


def _wording(of: Wording | None) -> WordingView | None:
    if of is None:
        return None
    return WordingView(
        text=of.text, by=of.by, character=of.character, at=moment(of.at), source=_source(of.source)
    )


def _source(origin: Origin | None) -> Source | None:
    # not checked again: what was accepted once is shown
    return None if origin is None else Source.model_construct(**origin._asdict())
