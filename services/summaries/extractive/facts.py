"""Exact names and numbers in a clause, as short phrases."""

from __future__ import annotations

import re

from services.summaries import text as texts
from services.summaries.extractive.terms import is_name, is_shouted, is_telling, tokens
from services.summaries.extractive.wording import cleaned

_QUOTED = re.compile(
    r"“([^”]{2,60})”|„([^“”]{2,60})[“”]|«([^»]{2,60})»|「([^」]{1,30})」|『([^』]{1,30})』|《([^》]{1,30})》|\"([^\"]{2,60})\""
)
_TELLS = re.compile('["0-9A-Z]')
_FIRST = '"0123456789'
_MEASURE_CHARACTERS = 16
_COUNTED_WITHIN = 2
_WITHIN_NAMES = (" ", "-", "'", "’", ". ")


def may_name(clause: str) -> bool:
    """False only where `names_and_numbers` finds nothing: a quick look at the characters."""
    return not clause.isascii() or _TELLS.search(clause, 1) is not None or clause[0] in _FIRST


def names_and_numbers(clause: str, *, single: bool = True) -> list[str]:
    """What stands in quotation marks, runs of capitalised words after the first word, and numbers with what they
    count. In their order, each literally in the clause. Without `single` a name has two words or more: where every noun has
    a capital, one alone tells nothing."""
    found = [(match.start(), next(filter(None, match.groups()))) for match in _QUOTED.finditer(clause)]
    spans = list(texts.words(clause))
    shouted = is_shouted(clause)
    at = 0
    while at < len(spans):
        start, end = spans[at]
        word = clause[start:end]
        last = at
        if any(map(str.isdigit, word)):
            counted = _counted(clause, spans, at)
            if counted is not None:
                last = max(last, counted)
                start = min(start, spans[counted][0])
                found.append((start, clause[start : spans[last][1]]))
        elif at and not shouted and is_name(word):
            while (
                last + 1 < len(spans)
                and is_name(clause[slice(*spans[last + 1])])
                and clause[spans[last][1] : spans[last + 1][0]] in _WITHIN_NAMES
            ):
                last += 1
            if single or last > at:
                found.append((start, clause[start : spans[last][1]]))
        at = last + 1
    shown = ((at, cleaned(text)) for at, text in sorted(set(found)))
    return list(dict.fromkeys(text for _, text in shown if text))


def _counted(clause: str, spans: list[tuple[int, int]], number: int) -> int | None:
    """The last of the next words that tell what a number counts ("19 nautical miles"), else a name right before it; None
    where nothing does: a number alone tells nothing."""
    found = None
    for at in range(number + 1, min(number + 1 + _COUNTED_WITHIN, len(spans))):
        if not _near(clause, spans[at - 1][1], spans[at]) or not _names_something(clause[slice(*spans[at])]):
            break
        found = at
    if found is None and number and _near(clause, spans[number - 1][1], spans[number]):
        return number - 1 if is_name(clause[slice(*spans[number - 1])]) else None
    return found


def _names_something(word: str) -> bool:
    return all(map(is_telling, tokens(word))) and not any(map(str.isdigit, word))


def _near(clause: str, end: int, following: tuple[int, int]) -> bool:
    return clause[end : following[0]] in ("", " ") and following[1] - following[0] <= _MEASURE_CHARACTERS
