"""Messages and summaries as they are stored, read as cheaply as they can be.

Messages are many and short: all of them are decoded in one call. Texts of summaries are large, and go from Redis into an
answer as they are, both times as JSON: they are cut out, not decoded. What does not stand as `model_dump_json` writes it
is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from schemas.summaries import Tier
from services.context.snapshot import StoredMessage, StoredSummary

_ROW = 7
"""Elements of a message's row."""

_tuple = tuple.__new__
"""Makes a named tuple in a third less time than its class does."""

_BODY, _RULES, _TEXT, _TOKENS = b'"body":{', b'"rules":[', b',"text":"', b'","tokens":'


def messages(numbered: Mapping[bytes, bytes]) -> list[StoredMessage]:
    """Messages in order, of rows `["id","role","author","text",tokens,at,"turn"]` by their number.

    A deleted message has one element more, and no text: it keeps its number and is left out. Raises ValueError for what
    is no row.
    """
    rows = sorted((int(seq), row) for seq, row in numbered.items())
    decoded = from_json(b"[%b]" % b",".join([row for _, row in rows]), cache_strings="none")
    found = [
        _tuple(StoredMessage, (seq, *row))
        for (seq, _), row in zip(rows, decoded, strict=True)
        if len(row) <= _ROW
    ]
    for message in found:
        if len(message) <= _ROW:
            raise ValueError(f"row {message[0]} is cut short")
    return found


def summary(stored: bytes, *, body: bool) -> StoredSummary:
    """A summary. With `body` its `data` is all that is stored; without, what a context can need: of the body the rules
    alone, and no text."""
    lean = None if body else _lean(stored)
    if lean is None:
        data = from_json(stored)
        lean = data, to_json(data["text"])
    data, text = lean
    return StoredSummary(data["id"], Tier(data["tier"]), text, data["tokens"], data["version"], data)


def _lean(stored: bytes) -> tuple[dict[str, Any], bytes] | None:
    """A summary's data without what is large, and its text as JSON; None where it has to be decoded.

    In a string, a quotation mark has a backslash before it: names of keys, with the quotation marks and the colon around
    them, can only be the keys.
    """
    start = stored.find(_BODY) + len(_BODY)
    rules = stored.find(_RULES, start)
    text = stored.find(_TEXT, rules)
    # what follows the text is short
    end = stored.rfind(_TOKENS, text) + 1
    if not len(_BODY) <= start <= rules < text < end:
        return None
    small: dict[str, Any] = from_json(stored[:start] + stored[rules:text] + stored[end:])
    return small, stored[text + len(_TEXT) - 1 : end]
