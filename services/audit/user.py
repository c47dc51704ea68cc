"""One user's saved memories as they stood at one moment, without texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from schemas.memories import Author
from services.memories.state import TEXT, Action, Origin, Place


class Mark(NamedTuple):
    """What is kept of a wording: `print` is equal for equal ones. `order` is the number of the change that set it."""

    order: int
    print: int


class Kept(NamedTuple):
    """An entry as it is stored: `order`, `newest`, `tokens` and `pinned` as its head says, the rest as it is.

    `alike` tells whether its head has the likeness of its text.
    """

    id: str
    scope: str
    pinned: bool
    order: int
    newest: int
    tokens: int
    characters: int
    mark: Mark
    measured: int
    alike: bool


class Trace(NamedTuple):
    """A change of the history (services.memories.state.Change)."""

    number: int
    previous: int
    memory_id: str
    action: Action
    by: Author
    source: Origin | None
    scope: str
    before: Mark | None
    after: Mark | None
    taken_back: bool

    @property
    def sets_text(self) -> bool:
        """Whether it is a link in the chain of the entry's texts."""
        return self.action in TEXT and not self.taken_back


@dataclass(frozen=True, slots=True, kw_only=True)
class UserSnapshot:
    """`places` is memory id -> where the entry is or was; `journals` chat -> field -> changes.

    `newest` is the number of the newest change. `commands` are those whose results are remembered, `ordered` the same
    in the order they came. `outbox` counts results that are not confirmed.
    """

    user: str
    newest: int
    places: Mapping[str, Place]
    entries: tuple[Kept, ...]
    changes: Mapping[int, Trace]
    journals: Mapping[str, Mapping[str, tuple[int, ...]]]
    settings: Mapping[str, str]
    commands: frozenset[str]
    ordered: tuple[str, ...]
    outbox: int
    histories: dict[str, list[Trace]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number in sorted(self.changes):
            change = self.changes[number]
            self.histories.setdefault(change.memory_id, []).append(change)

    def ever_pinned(self, memory_id: str) -> bool:
        """Whether an entry is or was pinned: what is pinned is not taken back (M8)."""
        place = self.places.get(memory_id)
        return (place is not None and place.pinned) or any(
            change.action in (Action.pinned, Action.unpinned) for change in self.histories.get(memory_id, ())
        )

    def of_turns(self) -> Iterator[Trace]:
        """Changes that a reply made, or what was derived from one, and that are not taken back. One without a text (what it
        had was cleared, or taken back before it) has nothing left to be taken back."""
        for change in self.changes.values():
            by_model = change.by in (Author.character, Author.deep_memory) and change.source is not None
            if by_model and change.sets_text and (change.before or change.after):
                yield change
