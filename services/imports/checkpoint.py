"""How far an import got, so that the next run goes on from there.

A convenience: ids follow from the places of the messages, so an import without its checkpoint doubles nothing either.

| the process dies | what follows |
|---|---|
| before the broker confirmed a batch | the batch is published when the import is run again |
| after the confirmation, before the mark | the same ids are published once more; the window skips them |
| while the mark is written | a torn last line is ignored |

Shown by tests/unit/test_imports_service.py.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple


class Mark(NamedTuple):
    """Of `chat`, the first `read` usable messages are confirmed; the last of them has the key `last`."""

    chat: str
    read: int
    last: str


class Checkpoint:
    """An append-only file of marks, one a line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @classmethod
    def of(cls, folder: Path, file: Path, target: str, chat: str | None = None) -> Checkpoint:
        """The checkpoint of `file` for `target`, the identity of the log it goes to: another log starts from nothing."""
        name = hashlib.sha256("\x1f".join((str(file.resolve()), target, chat or "")).encode()).hexdigest()
        return cls(folder / f"{name[:32]}.jsonl")

    def load(self) -> dict[str, Mark]:
        """The newest mark of each chat."""
        marks: dict[str, Mark] = {}
        if not self._path.exists():
            return marks
        for line in self._path.read_text("utf-8", errors="replace").splitlines():
            try:
                chat, read, last = json.loads(line)
            except ValueError:
                continue
            if isinstance(chat, str) and isinstance(read, int):
                marks[chat] = Mark(chat, read, str(last))
        return marks

    def add(self, marks: Iterable[Mark]) -> None:
        """Note what is confirmed."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        newest = {mark.chat: mark for mark in marks}
        # begins with a line end: a torn line of a killed run must not swallow this one
        text = "".join(f"\n{json.dumps(mark)}" for mark in newest.values())
        with self._path.open("a", encoding="utf-8") as file:
            file.write(text)

    def clear(self) -> None:
        """Forget everything."""
        self._path.unlink(missing_ok=True)
