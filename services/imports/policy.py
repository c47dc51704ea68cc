"""The rules of an import: which messages are usable, and which of them make a turn. No I/O."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from schemas import limits
from schemas.turns import Role
from services.imports import times
from services.imports.port import SourceMessage, Unusable

TURN_BYTES = limits.EVENT_BYTES - 131_072
"""Texts of one turn as JSON. What is left of an event's limit holds ids, authors and the rest of at most 200 messages."""


def usable(
    place: str, key: str, role: Role, author: str, text: Any, time: Any, model: Any = None
) -> Iterator[SourceMessage | Unusable]:
    """The message, or why it is none. A time that is not understood is reported, the message is used without it."""
    reason = refusal(text)
    if reason is not None:
        yield Unusable(place, reason)
        return
    at = times.parse(time)
    if at is None and time not in (None, ""):
        yield Unusable(place, "time not understood (the message is used without it)")
    name = clean(model)[: limits.NAME_CHARACTERS] if isinstance(model, str) and model else None
    yield SourceMessage(clean(key), role, clean(author)[: limits.ID_CHARACTERS], text, at, name)


def refusal(text: Any) -> str | None:
    """Why this cannot be the text of a message; None where it can."""
    if not isinstance(text, str):
        return "no text"
    if not text.strip():
        return "empty text"
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        return "not valid Unicode (a lone surrogate)"
    if size > limits.MESSAGE_BYTES:
        return f"over the limit of {limits.MESSAGE_BYTES} bytes"
    if written_bytes(text) > TURN_BYTES:
        return f"over the limit of {TURN_BYTES} bytes once written as JSON"
    return None


def written_bytes(text: str) -> int:
    """Bytes of the text as a JSON string: control characters take six."""
    return len(json.dumps(text, ensure_ascii=False).encode())


def clean(text: str) -> str:
    """The text without lone surrogates, which JSON can carry and UTF-8 cannot."""
    return text.encode(errors="replace").decode()


def identifier(name: str) -> str:
    """An id from a name: what an id may not have becomes a hyphen. Different names may give the same id."""
    return re.sub(r"[\s{}\x00-\x1f\x7f]+", "-", clean(name))[: limits.ID_CHARACTERS // 2] or "-"


class Turn(NamedTuple):
    """Messages that belong together, in order. `read` counts the chat's usable messages up to its end."""

    messages: tuple[SourceMessage, ...]
    read: int


class Grouping:
    """Messages of one chat in, turns out: what users wrote in a row and what was answered in a row.

    A chat that begins with an answer has a turn without a question. A turn over the limits of an event is
    divided. What has no answer at the end is no turn yet (`unanswered`).
    """

    def __init__(self, read: int = 0) -> None:
        self._read = read
        self._open: list[SourceMessage] = []
        self._bytes = 0

    def add(self, message: SourceMessage) -> Turn | None:
        """The turn that this message ended, if it did."""
        size = written_bytes(message.text)
        asks_again = self._open and message.role is Role.user and self._open[-1].role is not Role.user
        full = len(self._open) >= limits.MESSAGES_PER_TURN or self._bytes + size > TURN_BYTES
        ended = self._close() if self._open and (asks_again or full) else None
        self._open.append(message)
        self._bytes += size
        self._read += 1
        return ended

    def finish(self) -> Turn | None:
        """The last turn, if it is one."""
        return self._close() if self._open and not self.unanswered else None

    @property
    def unanswered(self) -> int:
        """Messages that wait for an answer."""
        return len(self._open) if self._open and self._open[-1].role is Role.user else 0

    def _close(self) -> Turn:
        turn = Turn(tuple(self._open), self._read)
        self._open, self._bytes = [], 0
        return turn
