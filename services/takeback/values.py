"""The pieces of a chat that taking back works on, as they are stored."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pydantic_core import from_json, to_json

from schemas.chunks import ChunkClosed
from schemas.summaries import Tier


class Item(NamedTuple):
    """A turn in the live or the pending list. `size` (messages) and `tokens` are of its messages, `at` in milliseconds."""

    first: int
    size: int
    tokens: int
    at: int
    first_id: str
    last_id: str

    @classmethod
    def parse(cls, raw: bytes) -> Item:
        """From its stored form."""
        first, size, tokens, at, first_id, last_id = raw.decode().split(" ")
        return cls(int(first), int(size), int(tokens), int(at), first_id, last_id)

    def __str__(self) -> str:
        return " ".join(map(str, tuple(self)))


class TurnEntry(NamedTuple):
    """A turn in the turn table. `messages` are the ids of its messages, `at` in milliseconds."""

    id: str
    digest: str
    first: int
    size: int
    at: int
    messages: tuple[str, ...]

    @classmethod
    def parse(cls, id: str, raw: bytes) -> TurnEntry:
        """From its stored form."""
        digest, first, size, at, *messages = raw.decode().split(" ")
        return cls(id, digest, int(first), int(size), int(at), tuple(messages))

    @property
    def end(self) -> int:
        """Number of the message after its last."""
        return self.first + self.size


class Row(NamedTuple):
    """A message. One that was deleted keeps its place, without a text."""

    id: str
    role: str
    author: str
    text: str
    tokens: int
    at: int
    turn: str
    deleted: bool = False

    @classmethod
    def of(cls, stored: Sequence[Any]) -> Row:
        """From the array of `:m`."""
        id, role, author, text, tokens, at, turn, *deleted = stored
        return cls(id, role, author, text, tokens, at, turn, bool(deleted))

    def stored(self) -> list[Any]:
        """As an array of `:m`."""
        row = list(self[:7])
        return [*row, 1] if self.deleted else row

    def dump(self) -> bytes:
        """As a value of `:m`."""
        return to_json(self.stored())


class Stored(NamedTuple):
    """A summary in use or in the archive, as far as its place in the tree goes. `raw` is its JSON."""

    id: str
    tier: Tier
    first: int
    last: int
    messages: int
    sources: tuple[str, ...]
    raw: bytes

    @classmethod
    def parse(cls, raw: bytes) -> Stored:
        """From its JSON."""
        data = from_json(raw)
        span, made = data["span"], data["provenance"]
        return cls(
            data["id"],
            Tier(data["tier"]),
            span["first_seq"],
            span["last_seq"],
            span["messages"],
            tuple(made.get("source_ids", ())),
            raw,
        )


def unpack(archive: bytes) -> dict[int, Row]:
    """The messages of an archived chunk by number."""
    return {seq: Row.of(stored) for seq, *stored in from_json(zlib.decompress(archive))}


def row(raw: bytes) -> Row:
    """A message as stored in `:m`."""
    return Row.of(from_json(raw))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A chat at one moment, and of its archives what a plan needs.

    `chunks` are pending, in the order of their index. `archived` has summaries by the name they have in the archive;
    `archives` the messages of summarised chunks; `turns` the newest turns, oldest first; `rows` messages by number.
    `memory_users` tells in whose saved memories a turn may have written.
    """

    id: str
    fields: Mapping[str, str]
    live: tuple[Item, ...]
    pending: tuple[Item, ...]
    chunks: tuple[ChunkClosed, ...]
    summaries: Mapping[str, Stored]
    archived: dict[str, Stored] = field(default_factory=dict)
    archives: dict[str, dict[int, Row]] = field(default_factory=dict)
    order: dict[int, str] = field(default_factory=dict)
    turns: list[TurnEntry] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)
    memory_users: dict[str, str] = field(default_factory=dict)

    @classmethod
    def empty(cls, id: str) -> Chat:
        """One without a turn."""
        return cls(id=id, fields={}, live=(), pending=(), chunks=(), summaries={})

    def number(self, name: str) -> int:
        """A counter of the window."""
        return int(self.fields.get(name) or 0)
