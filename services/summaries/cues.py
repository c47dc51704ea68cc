"""The cue lists of cues.yaml, compiled: what opens a rule, a correction or a promise in many languages."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

import yaml

from services.summaries.text import is_unspaced

_GAP = r".{0,40}?"
_END = ""


class Cues(NamedTuple):
    """Patterns for text that went through `fold`.

    `opener`: introduces a rule and ends before its colon. `correction` and `command`: at the beginning of a sentence.
    `rule`: anywhere in a sentence that states a rule. `promise`: anywhere in a clause that promises something.
    """

    opener: re.Pattern[str]
    rule: re.Pattern[str]
    command: re.Pattern[str]
    correction: re.Pattern[str]
    promise: re.Pattern[str]


@lru_cache(maxsize=1)
def cues() -> Cues:
    """The lists that ship. Raises KeyError where a list is missing from the file."""
    raw = yaml.safe_load((files("services.summaries") / "cues.yaml").read_text(encoding="utf-8"))
    return Cues(
        **{name: compile_phrases(cue for cues in raw[name].values() for cue in cues) for name in Cues._fields}
    )


def fold(text: str) -> str:
    """The text in lower case with every character in its place (`lower` alone makes two of a Turkish dotted I)."""
    lower = text.lower()
    if len(lower) == len(text):
        return lower
    return "".join(low if len(low := character.lower()) == 1 else character for character in text)


def compile_phrases(phrases: Iterable[str]) -> re.Pattern[str]:
    """One pattern for all phrases; of two that begin alike the longer one wins. A phrase in a script with spaces matches
    whole words; `...` stands for up to 40 characters of one line. As a tree, so that a text is read in linear time
    with few comparisons at each character."""
    spaced: _Tree = {}
    unspaced: _Tree = {}
    for phrase in phrases:
        node = unspaced if is_unspaced(phrase[0]) or phrase.startswith("...") else spaced
        for atom in _atoms(fold(phrase)):
            node = node.setdefault(atom, {})
        node[_END] = {}
    options = [
        f"{boundary}(?=[{''.join(sorted(atom for atom in tree if len(atom) == 1))}])(?:{_written(tree)})"
        for tree, boundary in ((spaced, r"(?<!\w)"), (unspaced, ""))
        if tree
    ]
    return re.compile("|".join(options))


_Tree = dict[str, "_Tree"]


def _atoms(phrase: str) -> list[str]:
    """What the pattern of a phrase is made of, one after the other."""
    found: list[str] = []
    for number, part in enumerate(phrase.split("...")):
        words = part.strip()
        if number:
            found.append(_GAP)
        for at, character in enumerate(words):
            if number and at == 0 and character.isalnum() and not is_unspaced(character):
                found.append(r"(?<!\w)")
            if character == " ":
                found.append(r"\s+")
            elif character in "'’":
                found.append("['’]")
            else:
                found.append(re.escape(character))
        if words and words[-1].isalnum() and not is_unspaced(words[-1]):
            found.append(r"(?!\w)")
    return found


def _written(tree: _Tree) -> str:
    """The pattern of a tree; what goes on is tried before what ends."""
    options = [
        atom + (f"(?:{_written(rest)})" if rest.keys() != {_END} else "")
        for atom, rest in tree.items()
        if atom
    ]
    if _END in tree:
        options.append("")
    return "|".join(options)
