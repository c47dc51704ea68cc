"""Sentences, clauses and words of a chat in any script: no dictionary, no list of languages, linear time.

Positions are half-open ranges of Unicode characters. A clause is a literal piece of its text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

PIECE_CHARACTERS = 200
"""A sentence that runs on for longer without any punctuation is taken apart at white space."""

_SHORT = 3
"""A piece of fewer words than this is no clause of its own, except at the beginning of a sentence ("Well, ...")."""

_CLOSERS = "\"'»”’)\\]）」』】*_~"
_ENDERS = ".!?…"
_FULL_ENDERS = "。！？｡．؟۔।॥።។။։"
_WEAK = ",;:，、；：،؛"
_UNSPACED = (
    "\u0e00-\u0e7f"  # Thai
    "\u0e80-\u0eff"  # Lao
    "\u1000-\u109f"  # Myanmar
    "\u1780-\u17ff"  # Khmer
    "\u3040-\u30ff"  # kana
    "\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)


def _marks() -> str:
    """The combining marks of the basic plane as ranges of a character class: `\\w` leaves them out, and Thai,
    Arabic or Devanagari words would fall apart at each vowel."""
    ranges: list[list[int]] = []
    for code in range(0x300, 0x10000):
        if unicodedata.category(chr(code)) in ("Mn", "Mc"):
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


_MARKS = _marks()
# An apostrophe or a hyphen separates: what is common ("it", "l") is told from what is not. Letters and marks are runs of
# two disjoint classes, because an alternative for every single character takes several times as long.
_WORD = re.compile(rf"\d+(?:[.,:/]\d+)+|[^\W_]+(?:[{_MARKS}]+[^\W_]*)*|[{_MARKS}]+(?:[^\W_]+[{_MARKS}]*)*")
_RUN = re.compile(rf"[{_UNSPACED}]+")
_SENTENCE_END = re.compile(
    rf"(?P<stop>\.)[{_CLOSERS}]*(?=\s|$)|[!?…]+[{_ENDERS}]*[{_CLOSERS}]*(?=\s|$)|[{_FULL_ENDERS}]+[{_CLOSERS}]*|\n+"
)
_WEAK_END = re.compile(
    rf"[,;:](?=\s)|[，、；：،؛]|\s[–—-]+(?=\s)|—|\s(?=[(\[（【])|(?<=[)\]）】])\s"
    rf"|(?<=[{_UNSPACED}])\s+(?=[{_UNSPACED}])"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\[\"'„“«»‘‚])(?:[^\W\d_]|[b-df-hj-np-tv-xzB-DF-HJ-NP-TV-XZ]{2,4}|\d{1,2}|[^\s.]+(?:\.[^\s.]+)+)$"
)


class Clause(NamedTuple):
    """A clause at `text[start:end]`. `opens` and `closes` tell whether it begins or ends its sentence."""

    start: int
    end: int
    opens: bool
    closes: bool


def one_line(text: str) -> str:
    """The text with every run of white space as one space, none at the ends."""
    return " ".join(text.split())


def words(text: str) -> Iterator[tuple[int, int]]:
    """Ranges of words, in order. In a script without spaces a word is a run up to the next other character."""
    for match in _WORD.finditer(text):
        yield match.span()


def words_of(text: str) -> list[str]:
    """The words themselves, in order."""
    return _WORD.findall(text)


def first_word(text: str) -> str:
    """The first of the words; "" where there is none."""
    match = _WORD.search(text)
    return match.group() if match else ""


def is_unspaced(character: str) -> bool:
    """Whether words of the character's script are written without spaces between them."""
    return _RUN.match(character) is not None


def unspaced_runs(text: str) -> Iterator[tuple[int, int]]:
    """Ranges of a word or a text that are in a script without spaces."""
    if not text.isascii():
        for match in _RUN.finditer(text):
            yield match.span()


def unspaced_characters(text: str) -> int:
    """How many characters of the text are in a script without spaces."""
    return 0 if text.isascii() else sum(map(len, _RUN.findall(text)))


def shorten(text: str, characters: int) -> str:
    """The beginning of the text, at most `characters` and "…" long, cut between words; "" where no word fits."""
    if len(text) <= characters:
        return text
    cut = characters
    while cut > 0 and not text[cut].isspace():
        if is_unspaced(text[cut - 1]) and unicodedata.category(text[cut]) not in ("Mn", "Mc"):
            break
        cut -= 1
    kept = text[:cut].rstrip(" \t\n" + _WEAK)
    return f"{kept}…" if kept else ""


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Ranges of sentences without the white space around them. A dot ends one only before white space, and not
    after a number of up to two digits, a single letter, letters without a vowel ("Dr") or an inner dot ("z.B.")."""
    start = 0
    for match in _SENTENCE_END.finditer(text):
        if match["stop"] and _ABBREVIATION.search(text[max(start, match.start() - 12) : match.start()]):
            continue
        yield from trimmed(text, start, match.end())
        start = match.end()
    yield from trimmed(text, start, len(text))


def clauses(text: str) -> list[Clause]:
    """The clauses of a text, in order; together they hold all of it but white space."""
    found: list[Clause] = []
    for first, last in sentences(text):
        pieces = _pieces(text, first, last)
        found.extend(
            Clause(start, end, at == 0, at == len(pieces) - 1) for at, (start, end) in enumerate(pieces)
        )
    return found


def _pieces(text: str, first: int, last: int) -> list[tuple[int, int]]:
    """A sentence taken apart at weak punctuation, short pieces joined to the one before them."""
    cuts = [match.end() for match in _WEAK_END.finditer(text, first, last)] + [last]
    pieces: list[tuple[int, int]] = []
    start = first
    for cut in cuts:
        for piece in trimmed(text, start, cut):
            if pieces and _is_short(text, *piece):
                pieces[-1] = (pieces[-1][0], piece[1])
            else:
                pieces.append(piece)
        start = cut
    return [part for piece in pieces for part in _bounded(text, *piece)]


def _is_short(text: str, start: int, end: int) -> bool:
    if end - start > 40:
        return False
    piece = text[start:end]
    return len(piece.split()) < _SHORT and unspaced_characters(piece) < 4 * _SHORT


def _bounded(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Pieces of at most PIECE_CHARACTERS where there is white space to cut at (else the run stays whole)."""
    while end - start > PIECE_CHARACTERS:
        cut = max(
            text.rfind(" ", start + 1, start + PIECE_CHARACTERS),
            text.rfind("\t", start + 1, start + PIECE_CHARACTERS),
        )
        if cut < 0:
            cut = text.find(" ", start + PIECE_CHARACTERS, end)
            if cut < 0:
                break
        yield from trimmed(text, start, cut)
        start = cut
    yield from trimmed(text, start, end)


def trimmed(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    if start < end:
        yield start, end
