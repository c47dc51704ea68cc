"""Echoes: a model that writes down again what it was given from its memory (M6). Pure.

A text repeats another one where nothing is left of their difference but how they are written: case, punctuation and
emphasis, spacing, composed or wide forms of a letter, vowel points, digits of another script, the mark of the line
in the prompt. One letter more or less already may say something else, in some language always: "kein" and "ein",
"gelmiyor" and "geliyor", "Theo" and "Thea", 不. So nothing else is ever left out, and a correction never passes for a
repetition. What is compared is a digest, which is stored with the entry: no text has to be read for it.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from hashlib import blake2b

_MARK = re.compile(r"^\s*(?:[-*•]\s*)?\[mem-[^\]\s]+(?: pinned)?(?: recent)?\]\s*")
"""Of a line of services/memories/injection.py."""

_NUMBER = re.compile(r"(?:(?<![^\s(\[{=:,;/])[-\u2212])?\d+(?:[.,:/\u066b\u066c]\d+)*")
"""A sign counts where a word could begin; a separator counts inside."""

_SIGNS = frozenset("%‰&@")
"""Punctuation, as Unicode sees it, that is read aloud."""

_NO_SPACES = re.compile(
    "(?<=[{0}]) +(?=[{0}])".format(
        "\u0e00-\u0eff"  # Thai, Lao
        "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
        "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"  # kana, Han
    )
)


@lru_cache(maxsize=64)
def likeness(text: str) -> bytes:
    """Equal for texts of which one merely repeats the other. 16 hexadecimal digits."""
    return blake2b(plain(text).encode(), digest_size=8).hexdigest().encode()


def plain(text: str) -> str:
    """What is left of a text without the way in which it is written: words and numbers, a space between them."""
    text = unicodedata.normalize("NFKC", _MARK.sub("", text)).casefold()
    # once more: folding case may leave what is not composed
    text = unicodedata.normalize("NFKC", text)
    pieces = []
    end = 0
    for number in _NUMBER.finditer(text):
        pieces.append(text[end : number.start()].translate(_WRITTEN))
        pieces.append(f" {_digits(number[0])} ")
        end = number.end()
    pieces.append(text[end:].translate(_WRITTEN))
    return _NO_SPACES.sub("", " ".join("".join(pieces).split()))


class _Signs(dict[int, str]):
    """What each sign becomes, worked out when it is first met."""

    def __missing__(self, code: int) -> str:
        self[code] = found = _letter(chr(code))
        return found


_WRITTEN = _Signs()


def _letter(sign: str) -> str:
    if sign in _APOSTROPHES or _POINTS.match(sign):
        return ""
    if sign in _SIGNS:
        return f" {sign} "
    category = unicodedata.category(sign)
    if category[0] in "LNM":
        return sign
    if category == "Cf":
        return ""
    return f" {sign} " if category[0] == "S" and category != "Sk" else " "


_APOSTROPHES = frozenset("'\u2019\u02bc\u0640")
"""Inside a word; with them the Arabic tatweel, which only stretches a word."""

_POINTS = re.compile("[\u0591-\u05c7\u064b-\u0652\u0670\ufe0e\ufe0f]")
"""Hebrew and Arabic vowel points, which most writers leave out; variation selectors."""


def _digits(number: str) -> str:
    signs = []
    for sign in number:
        value = unicodedata.decimal(sign, None)
        signs.append(_SEPARATORS.get(sign, sign) if value is None else str(value))
    return "".join(signs)


_SEPARATORS = {"\u2212": "-", "\u066b": ".", "\u066c": ","}
