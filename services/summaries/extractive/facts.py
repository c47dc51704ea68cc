"""Exact names and numbers in a clause, as short phrases."""

from __future__ import annotations

import re

from services.summaries import text as texts

_QUOTED = re.compile(
    r"“([^”]{2,60})”|„([^“”]{2,60})[“”]|«([^»]{2,60})»|「([^」]{1,30})」|『([^』]{1,30})』|《([^》]{1,30})》|\"([^\"]{2,60})\""
)
_MEASURE_CHARACTERS = 16
_WITHIN_NAMES = (" ", "-", "'", "’", ". ")


def names_and_numbers(clause: str, *, single: bool = True) -> list[str]:
    """What stands in quotation marks, runs of capitalised words after the first word, and numbers with what they
    count. In their order, each literally in the clause. Without `single` a name has two words or more: where every noun has
    a capital, one alone tells nothing."""
    found = [(match.start(), next(filter(None, match.groups()))) for match in _QUOTED.finditer(clause)]
    spans = list(texts.words(clause))
    at = 0
    while at < len(spans):
        start, end = spans[at]
        word = clause[start:end]
        last = at
        if any(map(str.isdigit, word)):
            if at + 1 < len(spans) and _near(clause, end, spans[at + 1]):
                last = at + 1
            if at and clause[spans[at - 1][0]].isupper() and _near(clause, spans[at - 1][1], spans[at]):
                start = spans[at - 1][0]
            found.append((start, clause[start : spans[last][1]]))
        elif at and _capital(word):
            while (
                last + 1 < len(spans)
                and _capital(clause[slice(*spans[last + 1])])
                and clause[spans[last][1] : spans[last + 1][0]] in _WITHIN_NAMES
            ):
                last += 1
            if single or last > at:
                found.append((start, clause[start : spans[last][1]]))
        at = last + 1
    return [text for _, text in sorted(set(found))]


def _capital(word: str) -> bool:
    return len(word) > 1 and word[0].isupper()


def _near(clause: str, end: int, following: tuple[int, int]) -> bool:
    return clause[end : following[0]] in ("", " ") and following[1] - following[0] <= _MEASURE_CHARACTERS
