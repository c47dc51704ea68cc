"""Messages and summaries as they are stored, read as cheaply as they can be.

Texts go from Redis into an answer as they are, both times as JSON: they are cut out, not decoded. What does not stand as
it is written (`services/window/store.py`, `model_dump_json`) is decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from schemas.summaries import Tier
from services.context.snapshot import StoredMessage, StoredSummary
from services.context.times import time_json

_ROW = 7
"""Elements of a message's row."""

_BETWEEN, _FIRST, _LAST = b'","', b',"', b'"]'
_tuple = tuple.__new__
"""Makes a named tuple in a third less time than its class does."""

_BODY, _RULES, _TEXT, _TOKENS = b'"body":{', b'"rules":[', b',"text":"', b'","tokens":'


def messages(numbered: Mapping[bytes, bytes]) -> list[StoredMessage]:
    """Messages in order, of rows `["id","role","author","text",tokens,at,"turn"]` by their number.

    A deleted message has one element more, and no text: it keeps its number and is left out.
    """
    rows = sorted((int(seq), row) for seq, row in numbered.items())
    return [message for seq, row in rows if (message := _message(seq, row)) is not None]


def _message(seq: int, row: bytes) -> StoredMessage | None:
    """None for a deleted one. Raises ValueError for what is no row."""
    pieces = _cut(row)
    if pieces is None:
        decoded = from_json(row)
        if len(decoded) > _ROW:
            return None
        id, role, author, text, tokens, at, turn = map(to_json, decoded)
        pieces = id[1:-1], role[1:-1], author[1:-1], text[1:-1], tokens, at, turn
    id, role, author, text, tokens, at, turn = pieces
    head = b'{"seq":%d,"id":"%b","role":"%b","author":"%b","text":"' % (seq, id, role, author)
    tail = b'","tokens":%b,"turn_id":%b,"at":%b}' % (tokens, turn, time_json(at))
    return _tuple(StoredMessage, (seq, id, int(tokens), int(at), turn, (head, text, tail)))


def _cut(row: bytes) -> tuple[bytes, ...] | None:
    """The elements of a row as JSON, strings without quotation marks but the last one; None where it has to be decoded.

    In a string, a quotation mark has a backslash before it. Without backslashes `","` only ends one and begins another; in
    the last one, `,"` can only be its beginning. Only the text is long: it is copied once.
    """
    if not row.endswith(_LAST):
        return None
    role = row.find(_BETWEEN, 2)
    author = row.find(_BETWEEN, role + 3)
    text = row.find(_BETWEEN, author + 3)
    if not 0 < role < author < text or row.find(b"\\", 0, text) >= 0:
        return None
    turn = row.rfind(_FIRST, text, -2)
    at = row.rfind(b",", text, turn)
    tokens = row.rfind(b",", text, at)
    return (
        row[2:role],
        row[role + 3 : author],
        row[author + 3 : text],
        row[text + 3 : tokens - 1],
        row[tokens + 1 : at],
        row[at + 1 : turn],
        row[turn + 1 : -1],
    )


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
