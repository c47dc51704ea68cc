"""Ranges of message numbers: do they follow one another from a first to a last number?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Piece(NamedTuple):
    """Messages first..last (both included) and the place that holds them."""

    first: int
    last: int
    where: str


def numbers(first: int, last: int) -> str:
    """A range for a person."""
    return f"message {first}" if first == last else f"messages {first}..{last}"


def breaks(pieces: Iterable[Piece], start: int, end: int) -> Iterator[str]:
    """What keeps the pieces from covering start..end-1 exactly once: gaps, overlaps, and what lies outside."""
    expected, before = start, "the beginning"
    for piece in sorted(pieces):
        if piece.last < piece.first:
            yield f"{piece.where} ends before it begins ({piece.first}..{piece.last})"
            continue
        if piece.first > expected:
            yield f"{numbers(expected, piece.first - 1)} missing between {before} and {piece.where}"
        elif piece.first < expected:
            yield f"{numbers(piece.first, min(piece.last, expected - 1))} twice: in {before} and in {piece.where}"
        if piece.last >= expected:
            expected, before = piece.last + 1, piece.where
    if expected < end:
        yield f"{numbers(expected, end - 1)} missing after {before}"
    elif expected > end:
        yield f"{numbers(end, expected - 1)} never recorded, but in {before}"
