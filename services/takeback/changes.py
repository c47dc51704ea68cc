"""What is to change in the keys of a chat, as plain values: the script carries it out, and a fork applies it to a copy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Value = str | bytes | int


BRING = "BRING"
"""Not one of Redis: fields of another hash are set here as well. Arguments: its key, then its field and the one here, ..."""


class Step(NamedTuple):
    """One command of Redis on one key, or BRING."""

    command: str
    key: str
    arguments: tuple[Value, ...] = ()


@dataclass(slots=True)
class Changes:
    """Steps in their order."""

    steps: list[Step] = field(default_factory=list)

    def set(self, key: str, fields: Mapping[Any, Value]) -> None:
        """Fields of a hash."""
        if fields:
            pairs = tuple(part for pair in fields.items() for part in pair)
            self.steps.append(Step("HSET", key, pairs))

    def bring(self, key: str, source: str, names: Mapping[str, str]) -> None:
        """Fields of the hash `source`, by the names that they get in the hash `key`: what Redis has is not sent again."""
        if names:
            pairs = tuple(part for here, there in names.items() for part in (there, here))
            self.steps.append(Step(BRING, key, (source, *pairs)))

    def drop(self, key: str, fields: Iterable[Value]) -> None:
        """Fields of a hash, existing or not."""
        names = tuple(fields)
        if names:
            self.steps.append(Step("HDEL", key, names))

    def replace(self, key: str, values: Iterable[Value]) -> None:
        """All of a list."""
        self.steps.append(Step("DEL", key))
        items = tuple(values)
        if items:
            self.steps.append(Step("RPUSH", key, items))

    def forget(self, key: str) -> None:
        """All of a key."""
        self.steps.append(Step("DEL", key))

    def add(self, key: str, members: Iterable[Value]) -> None:
        """Members of a set."""
        names = tuple(members)
        if names:
            self.steps.append(Step("SADD", key, names))

    def shorten(self, key: str, length: int) -> None:
        """Keep at most so many from the head of a list."""
        self.steps.append(Step("LTRIM", key, (0, length - 1)) if length else Step("DEL", key))

    def put(self, key: str, place: int, value: Value) -> None:
        """One element of a list, which is there."""
        self.steps.append(Step("LSET", key, (place, value)))
