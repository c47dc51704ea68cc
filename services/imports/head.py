"""How a file begins: which fields its first JSON value has. Enough to tell the formats apart."""

from __future__ import annotations

import io
from itertools import islice
from typing import NamedTuple

import ijson

from services.imports.source import Source

HEAD_BYTES = 1 << 20
_EVENTS = 20_000
_LINES = 20


class Head(NamedTuple):
    """`fields`: paths such as `channel.id` or `item.mapping` (`item` is an element of an array)."""

    fields: frozenset[str]

    def has(self, *fields: str) -> bool:
        """Whether all of them are there."""
        return self.fields.issuperset(fields)


def read(source: Source) -> Head:
    """Fields of the first value; of the first line that is JSON, where the first one is not. Leaves `source` at the start."""
    start = source.read(HEAD_BYTES)
    source.rewind()
    found = _fields(start)
    if not found:
        for line in start.split(b"\n")[1:_LINES]:
            found = _fields(line)
            if found:
                break
    return Head(found)


def _fields(text: bytes) -> frozenset[str]:
    found = set()
    try:
        for prefix, event, value in islice(ijson.parse(io.BytesIO(text)), _EVENTS):
            if event == "map_key":
                found.add(f"{prefix}.{value}" if prefix else value)
    except (ijson.JSONError, UnicodeDecodeError):
        # the head was cut, a second line follows, or it is no JSON: what was found tells
        pass
    return frozenset(found)
