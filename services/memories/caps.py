"""How much a scope holds (M3): at most 100 unpinned entries and 20 pins. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from heapq import nsmallest

from schemas import limits
from services.memories.state import Held


def pins(entries: Iterable[Held]) -> int:
    """How many are pinned."""
    return sum(entry.pinned for entry in entries)


def no_pin_left(entries: Iterable[Held]) -> str | None:
    """Why no other entry can be pinned in a scope with these; None: one can."""
    count = pins(entries)
    if count < limits.MEMORIES_PINNED:
        return None
    return f"pinned: the scope has {count} pins, the limit is {limits.MEMORIES_PINNED}; unpin one first"


def overflow(entries: Iterable[Held], stay: Collection[str] = ()) -> list[Held]:
    """Unpinned entries over the limit: the least recently updated, those first. Those that `stay` are not among them."""
    unpinned = [entry for entry in entries if not entry.pinned]
    over = len(unpinned) - limits.MEMORIES_UNPINNED
    if over <= 0:
        return []
    return nsmallest(over, (entry for entry in unpinned if entry.id not in stay), key=age)


def age(entry: Held) -> tuple[int, str]:
    """Sorts by the last update, the least recent one first."""
    return entry.order, entry.id
