"""Saved memories as they are stored, made into what an answer has of them; a context may have hundreds.

Like texts of summaries (services/context/rows.py), they go from Redis into an answer as they are, as JSON. What has a
quotation mark, a backslash or anything that a line of the prompt may not have (services/memories/injection.py) is decoded.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from pydantic_core import from_json, to_json

from services.context.memories import Memory
from services.context.times import time_json
from services.memories import injection
from services.memories.selection import RECENT, Candidate, is_recent

_BODY, _BETWEEN, _NULL = b'[["', b'","', b"null,"
# in UTF-8 the second control characters begin with C2, the separators of lines and most spaces with C2 or E2
_SAFE = bytes(set(range(0x20, 0x100)) - set(b'"\\<>\x7f\xc2\xe2'))
_SPACES = tuple(each.encode() for each in (" ", "\u1680", "\u3000"))
# by what is pinned and what is recent
_LABELS = {which: b"- [%%b%b] " % flags.encode() for which, flags in injection.FLAGS.items()}
_FLAGS = {
    which: to_json(dict(zip(("pinned", "recent"), which, strict=True)))[1:-1] for which in injection.FLAGS
}
_TOKENS = {
    (pinned, recent): injection.line_tokens(0, pinned=pinned, recent=recent)
    for pinned, recent in injection.FLAGS
}
_tuple = tuple.__new__
"""Makes a named tuple in a third less time than its class does."""


class Form(NamedTuple):
    """A memory as it stands in an answer, but for its text: that is `value[start:end]` of what is stored, counted from the
    end. Pieces are JSON. It holds for one version of the memory, until (in milliseconds since 1970) it is not recent
    any more; None: it is not."""

    order: int
    id: str
    pinned: bool
    tokens: int
    label: bytes
    head: bytes
    tail: bytes
    start: int
    end: int
    until: int | None

    def filled(self, value: bytes) -> Memory:
        """With the text."""
        order, id, pinned, tokens, label, head, tail, start, end, _ = self
        text = value[start:end]
        return _tuple(Memory, (order, id, pinned, tokens, (label, text), (head, text, tail)))


def form(entry: Candidate, value: bytes, now: int) -> Form | None:
    """None for what has to be decoded each time. `value` and `now` as for `memory`."""
    cut = _cut(value)
    if cut is None:
        return None
    text, by, at = cut
    name = to_json(entry.id)[1:-1]
    if not (_plain(text) and _plain(name)):
        return None
    order, id, scope, pinned, tokens, _ = entry
    recent = is_recent(int(at), now)
    start = value.find(_BODY) + len(_BODY) - len(value)
    return Form(
        order,
        id,
        pinned,
        tokens + _TOKENS[pinned, recent],
        _LABELS[pinned, recent] % name,
        *_around(name, scope, (pinned, recent), by, at),
        start,
        start + len(text),
        int(at) + RECENT if recent else None,
    )


def memory(entry: Candidate, value: bytes, now: int) -> Memory:
    """`value` ends with the body of services.memories.state.Held, `now` is in milliseconds since 1970."""
    found = form(entry, value, now)
    return decoded(entry, value, now) if found is None else found.filled(value)


def decoded(entry: Candidate, value: bytes, now: int) -> Memory:
    """The same for what has no form."""
    order, id, scope, pinned, tokens, _ = entry
    text, by, at = _cut(value) or _decoded(value)
    flags = pinned, is_recent(int(at), now)
    name = to_json(id)[1:-1]
    words = injection.line(id, from_json(b'"%b"' % text), pinned=pinned, recent=flags[1])
    head, tail = _around(name, scope, flags, by, at)
    return Memory(order, id, pinned, tokens + _TOKENS[flags], (to_json(words)[1:-1], b""), (head, text, tail))


def _around(name: bytes, scope: str, flags: tuple[bool, bool], by: bytes, at: bytes) -> tuple[bytes, bytes]:
    """What stands before and after the text."""
    head = b'{"id":"%b","scope":%b,"text":"' % (name, _json(scope))
    return head, b'",%b,"by":%b,"updated_at":%b}' % (_FLAGS[flags], by, time_json(at))


def _cut(value: bytes) -> tuple[bytes, bytes, bytes] | None:
    """Of `[["text","by",character or null,at,...` the text without its quotation marks, `by` with them, and `at`; None where
    it has to be decoded. The text is long: it is copied once."""
    start = value.find(_BODY) + len(_BODY)
    end = value.find(_BETWEEN, start)
    text, rest = value[start:end], value[end + len(_BETWEEN) :]
    by, _, rest = rest.partition(b'",')
    if not rest.startswith(_NULL):
        character, _, rest = rest[1:].partition(b'",')
        if b"\\" in character:
            return None
    else:
        rest = rest[len(_NULL) :]
    at = rest.partition(b",")[0]
    if b"\\" in text or not at.isdigit():
        return None
    return text, b'"%b"' % by, at


def _decoded(value: bytes) -> tuple[bytes, bytes, bytes]:
    (text, by, _, at, *_), *_ = from_json(value[value.find(_BODY) :])
    return to_json(text)[1:-1], to_json(by), b"%d" % at


def _plain(text: bytes) -> bool:
    """Whether a line of the prompt has a JSON string as it stands: nothing escaped there or here, no space around."""
    doubtful = text.translate(None, _SAFE)
    if not doubtful:
        return not (text.startswith(_SPACES) or text.endswith(_SPACES))
    if doubtful.translate(None, b"\xc2\xe2"):
        return False
    words = text.decode()
    return injection.escaped(words) == words


@lru_cache(maxsize=4_096)
def _json(scope: str) -> bytes:
    return to_json(scope)
