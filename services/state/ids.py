"""Deterministic ids: the same step on the same input has the same id, so that a repeat finds what is already there."""

from __future__ import annotations

from hashlib import sha1
from uuid import UUID

NAMESPACE = UUID("6f0c2d4e-58a1-5b7e-9d3a-2f6b1c7e8a90")
"""Root of all ids of Afterturn; window.lua carries the same bytes."""

_SEPARATOR = "\x1f"
_ROOT = NAMESPACE.bytes


def derive(step: str, *parts: str | int) -> str:
    """uuid5 of the step and its parts, as text."""
    # by hand: `uuid.uuid5` takes three times as long, and every turn that is booked has an id
    name = sha1(_ROOT + _SEPARATOR.join((step, *map(str, parts))).encode(), usedforsecurity=False).hexdigest()
    variant = "89ab"[int(name[16], 16) & 3]
    return f"{name[:8]}-{name[8:12]}-5{name[13:16]}-{variant}{name[17:20]}-{name[20:32]}"


def chunk_id(chat: str, generation: int, first_seq: int, last_seq: int) -> str:
    """A chunk is named by what it covers. The summary of a chunk has the chunk's id."""
    return derive("chunk", chat, generation, first_seq, last_seq)


def merged_id(tier: str, chat: str, generation: int, first_seq: int, last_seq: int) -> str:
    """A merged or long-term summary is named by its tier and what it covers."""
    return derive(tier, chat, generation, first_seq, last_seq)


def booked(turn: str, digest: str) -> str:
    """Names a turn that was applied and is gone, among the ids of a chat's applied events; no id has a space."""
    return f"{turn} {digest}"
