"""A large JSON document piece by piece, and JSON lines one by one."""

from __future__ import annotations

import json
from collections.abc import Container, Iterator
from typing import Any

import ijson
from ijson.common import ObjectBuilder

from services.imports.source import Source

START = object()
"""In place of a value: an object begins."""
LINE_BYTES = 64 << 20
"""Longer lines are not read into memory."""


def walk(source: Source, elements: Container[str]) -> Iterator[tuple[str, Any]]:
    """(path, value) in document order: whole values at the paths in `elements`, single values everywhere else.

    An object outside of `elements` gives (path, START) where it begins. Raises ijson.JSONError.
    """
    builder, depth = ObjectBuilder(), 0
    for path, event, value in ijson.parse(source, use_float=True):
        opens = event in ("start_map", "start_array")
        if depth == 0 and not (opens and path in elements):
            if event == "start_map":
                yield path, START
            elif not opens and event not in ("end_map", "end_array", "map_key"):
                yield path, value
            continue
        builder.event(event, value)
        if opens:
            depth += 1
        elif event in ("end_map", "end_array"):
            depth -= 1
            if depth == 0:
                yield path, builder.value
                builder = ObjectBuilder()


class NotJson(ValueError):
    """A line that cannot be read; the message tells why and quotes nothing."""


def lines(source: Source) -> Iterator[tuple[int, Any]]:
    """(line number from 1, value, or NotJson as a value). Empty lines are left out."""
    number = 0
    while line := source.readline(LINE_BYTES):
        number += 1
        if len(line) == LINE_BYTES and not line.endswith(b"\n"):
            while (rest := source.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
                pass
            yield number, NotJson(f"longer than {LINE_BYTES} bytes")
        elif not line.isspace():
            yield number, _value(line)


def _value(line: bytes) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        return NotJson(f"not JSON ({error.msg}, character {error.pos + 1})")
    except UnicodeDecodeError:
        return NotJson("not UTF-8")
    except RecursionError:
        return NotJson("nested too deeply")
