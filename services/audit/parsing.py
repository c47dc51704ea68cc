"""Turns stored bytes into values and notes what it cannot read: by key and field, without the content."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from services.audit.report import Check, Finding

K = TypeVar("K")
T = TypeVar("T")

UNREADABLE = (ValueError, TypeError, IndexError, KeyError, zlib.error)
"""What parsers raise."""


class Parsing:
    """Of one chat or one user; `findings` grows."""

    def __init__(self, chat: str = "", user: str = "") -> None:
        self._chat = chat
        self._user = user
        self.findings: list[Finding] = []

    def table(
        self,
        key: str,
        content: Mapping[bytes, bytes],
        name: Callable[[str], K],
        value: Callable[[bytes], T],
    ) -> dict[K, T]:
        """A hash, without the fields that cannot be read."""
        found = {}
        for field, raw in content.items():
            try:
                found[name(text(field))] = value(raw)
            except UNREADABLE as error:
                self.note(f"{key}: field {text(field)[:100]}", error)
        return found

    def items(self, key: str, content: Sequence[bytes], value: Callable[[bytes], T]) -> tuple[T, ...]:
        """A list, without the items that cannot be read."""
        found = []
        for at, raw in enumerate(content):
            try:
                found.append(value(raw))
            except UNREADABLE as error:
                self.note(f"{key}: item {at}", error)
        return tuple(found)

    def number(self, key: str, content: Mapping[bytes, bytes], field: bytes) -> int:
        """A field of a hash; 0 where it is missing, -1 where it is no number."""
        try:
            return int(content.get(field, b"0"))
        except ValueError as error:
            self.note(f"{key}: field {text(field)}", error)
            return -1

    def note(self, where: str, error: Exception) -> None:
        """Something cannot be read."""
        # an error's message may quote the content, its type does not
        detail = f"{where} ({type(error).__name__})"
        self.findings.append(Finding(self._chat, Check.readable, detail, user=self._user))


def text(value: bytes) -> str:
    """As text, whatever it is."""
    return value.decode("utf-8", "replace")
