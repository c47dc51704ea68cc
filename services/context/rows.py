"""Messages and summaries as they are stored, read as cheaply as they can be.

The text of a summary goes from Redis into an answer as it is, both times as JSON: it is cut out, not decoded. In JSON a
quotation mark inside a string has a backslash before it: names of keys, with the quotation marks and the colon around
them, can only be the keys. What does not stand as `model_dump_json` writes it is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from schemas.summaries import Tier
from services.context.snapshot import StoredMessage, StoredSummary

_ROW = 7
"""Elements of a message's row."""

_BODY, _RULES, _TEXT, _TOKENS = b'"body":{', b'"rules":[', b',"text":"', b'","tokens":'


def messages(numbered: Mapping[bytes, bytes]) -> list[StoredMessage]:
    """Messages in order, of rows `["id","role","author","text",tokens,at,"turn"]` by their number.

    A deleted message has one element more, and no text: it keeps its number and is left out.
    """
    numbers = sorted(map(int, numbered))
    # one JSON array parses faster than many small ones; hardly a string is in another chat as well
    rows = from_json(b"[%b]" % b",".join([numbered[b"%d" % seq] for seq in numbers]), cache_strings="keys")
    return [StoredMessage(seq, *row) for seq, row in zip(numbers, rows, strict=True) if len(row) == _ROW]


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
    """A summary's data without what is large, and its text as JSON; None where the keys do not stand as
    `model_dump_json` writes them."""
    start = stored.find(_BODY) + len(_BODY)
    rules = stored.find(_RULES, start)
    text = stored.find(_TEXT, rules)
    # what follows the text is short
    end = stored.rfind(_TOKENS, text) + 1
    if not len(_BODY) <= start <= rules < text < end:
        return None
    small: dict[str, Any] = from_json(stored[:start] + stored[rules:text] + stored[end:])
    return small, stored[text + len(_TEXT) - 1 : end]
