"""An id in JSON as bytes: producers differ in what they escape, and `é` may be itself, `\\u00e9` or `\\u00E9`. Pure."""

from __future__ import annotations

import re

_SHORT = {'"': rb"\"", "\\": rb"\\", "/": rb"\/"}
"""Escapes of two characters; the others stand for what no id has."""


class Named:
    """Finds strings that are this id, without reading the JSON: fast, and at times more than there is."""

    def __init__(self, id: str) -> None:
        self._plain = id.encode()
        self._pattern = re.compile(b'"%b"' % b"".join(map(_forms, id)))

    def inside(self, value: bytes) -> bool:
        """False only where no string of `value` is the id."""
        return (self._plain in value or b"\\" in value) and self._pattern.search(value) is not None


def _forms(character: str) -> bytes:
    units = character.encode("utf-16-be").hex()
    escaped = "".join(rf"\\u{units[at : at + 4]}" for at in range(0, len(units), 4)).encode()
    forms = [re.escape(character.encode()), b"(?i:%b)" % escaped]
    if character in _SHORT:
        forms.append(re.escape(_SHORT[character]))
    return b"(?:%b)" % b"|".join(forms)
