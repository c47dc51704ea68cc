"""Acknowledgements in offset order: what may be committed never passes a record that is not done (promise 2)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class OrderedAcks:
    """One partition, one assignment. Offsets are taken in growing order and done in any."""

    __slots__ = ("_done", "_taken", "position")

    def __init__(self) -> None:
        self._taken: deque[tuple[int, int]] = deque()
        self._done: set[int] = set()
        self.position: int | None = None
        """The offset to commit: everything before it is done. None as long as nothing is."""

    def __len__(self) -> int:
        """Records taken and not released."""
        return len(self._taken)

    @property
    def unfinished(self) -> int | None:
        """The first offset that is not released; None as long as none was taken."""
        return self._taken[0][0] if self._taken else self.position

    @property
    def oldest(self) -> int | None:
        """Timestamp of the oldest record that is not released, in milliseconds."""
        return self._taken[0][1] if self._taken else None

    def take(self, offset: int, timestamp: int = 0) -> None:
        """A record is about to be handled. Raises ValueError for an offset out of order."""
        if self._taken and offset <= self._taken[-1][0]:
            raise ValueError(f"offset {offset} taken after {self._taken[-1][0]}")
        if self.position is not None and offset < self.position:
            raise ValueError(f"offset {offset} taken after everything before {self.position} was released")
        self._taken.append((offset, timestamp))

    def done(self, offsets: Iterable[int]) -> None:
        """These records have had all their effects. Offsets may have gaps (compaction, transactions)."""
        self._done.update(offsets)
        taken, done = self._taken, self._done
        while taken and taken[0][0] in done:
            offset, _ = taken.popleft()
            done.discard(offset)
            self.position = offset + 1
