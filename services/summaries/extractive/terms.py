"""What the words of a text are worth, without knowing its language.

A token's number in the `o200k_base` vocabulary grows with its rarity in text of many languages. It is used only in
comparison with the other words of the same text, so a language whose words are all far down the vocabulary is
treated like English.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

import tiktoken

from services.summaries import text as texts
from services.tokens.counter import ENCODING, default_counter

# Learned by Poisson regression on the first five chats of LoCoMo (the count of answers that a word of a chunk
# appears in, on these features), then rounded; tests/bench/retention.py measures the outcome.
_RARE = 3.75
_RARE_FROM = 0.3
_COMMON = 0.7
_DIGIT = 1.2
_CAPITAL = 2.2
_CAPITAL_OF_NOUN = 1.0
_CAPITALS_OF_NAMES = 0.15
_REPEATED = 0.4
_SHARED = 0.2
_ASKED_ONLY = -1.3
_BRACKETED_ONLY = -0.9

_LAST_RANK = 200_000
_TELLING_FROM = math.log(3_000)
"""Words from here on in the vocabulary name something; before it are mostly those that hold a sentence together."""
_EMPHASIS_TO = math.log(20_000)
"""A word before here in the vocabulary that stands in capitals is shouted, a rarer one is a short form ("NATO")."""
_SHOUTED_CHARACTERS = 4
_ENCODED_AT_ONCE = 64
_REMEMBERED_CHARACTERS = 32
"""A longer word is seldom met again: it is no word, or a whole clause in a script without spaces."""


class Token(NamedTuple):
    """A word as it stands in a clause. `commonness` is the logarithm of its place in the vocabulary: higher is rarer."""

    term: str
    commonness: float
    digit: bool
    capital: bool


class Use(NamedTuple):
    """The words of one clause and what surrounds them."""

    tokens: tuple[Token, ...]
    author: str
    question: bool
    bracketed: bool


@lru_cache(maxsize=1)
def _encoding() -> tiktoken.Encoding:
    default_counter()  # it puts the vocabulary where tiktoken finds it
    return tiktoken.get_encoding(ENCODING)


@lru_cache(maxsize=65_536)
def _commonness(word: str) -> float:
    ids = _encoding().encode_ordinary(f" {word[:_ENCODED_AT_ONCE]}")
    return math.log(ids[0] + 1) if len(ids) == 1 else math.log(_LAST_RANK) + 0.6 * (len(ids) - 1)


def tokens(clause: str) -> tuple[Token, ...]:
    """The words of a clause. A run in a script without spaces counts as the pieces that the vocabulary has for it."""
    found: list[Token] = []
    named = False
    may_name = not is_shouted(clause)
    for word in texts.words_of(clause):
        known = _word(word) if len(word) <= _REMEMBERED_CHARACTERS else _read(word)
        found += known.named if named else known.plain
        # the first word of a clause has its capital from there
        named = may_name
    return tuple(found)


class _Word(NamedTuple):
    """What a word is made of: as it is where a capital says nothing, and where one tells a name."""

    plain: tuple[Token, ...]
    named: tuple[Token, ...]


def _read(word: str) -> _Word:
    found: list[Token] = []
    folded = word.casefold()
    done = 0
    for first, last in texts.unspaced_runs(folded):
        _append(found, folded[done:first])
        for piece in range(first, last, _ENCODED_AT_ONCE):
            found.extend(
                Token(f"\0{number}", math.log(number + 1), digit=False, capital=False)
                for number in _encoding().encode_ordinary(folded[piece : min(last, piece + _ENCODED_AT_ONCE)])
            )
        done = last
    _append(found, folded[done:])
    plain = tuple(found)
    if done == len(folded) or not is_name(word):
        return _Word(plain, plain)
    return _Word(plain, (*plain[:-1], plain[-1]._replace(capital=True)))


_word = lru_cache(maxsize=16_384)(_read)


def is_name(word: str) -> bool:
    """Whether a word is written like a name: with a capital, and not a common word in capitals for emphasis."""
    if len(word) < 2 or not word[0].isupper():
        return False
    return not word.isupper() or _commonness(word.casefold()) > _EMPHASIS_TO


def is_shouted(clause: str) -> bool:
    """Whether most of the letters that have a case are capitals."""
    if clause.islower():
        return False
    large = sum(map(str.isupper, clause))
    return large > _SHOUTED_CHARACTERS and large > sum(map(str.islower, clause))


def is_telling(token: Token) -> bool:
    """Whether a word names something, rather than hold a sentence together."""
    return token.capital or token.commonness > _TELLING_FROM


def _append(found: list[Token], word: str) -> None:
    if word:
        found.append(Token(word, _commonness(word), any(map(str.isdigit, word)), capital=False))


def weights(uses: Sequence[Use], known: Iterable[str]) -> dict[str, float]:
    """The worth of every term, relative to the others of the same text; 0 for the names in `known` and short forms
    of them, since the names of those who speak stand in front of what they say."""
    seen: dict[str, _Seen] = {}
    ranks: list[float] = []
    for use in uses:
        for token in use.tokens:
            ranks.append(token.commonness)
            entry = seen.get(token.term)
            if entry is None:
                entry = seen[token.term] = _Seen(token)
            entry.add(token, use)
    ranks.sort()
    capital = _CAPITAL_OF_NOUN if capitals_are_common(use.tokens for use in uses) else _CAPITAL
    begun = {name[:end] for text in known for name in _names(text) for end in range(3, len(name) + 1)}
    found: dict[str, float] = {}
    for term, entry in seen.items():
        if term in begun:
            found[term] = 0.0
            continue
        low, high = (f(ranks, entry.token.commonness) for f in (bisect_left, bisect_right))
        found[term] = math.exp(entry.score((low + high) / 2 / len(ranks), capital))
    return found


def capitals_are_common(clauses: Iterable[Sequence[Token]]) -> bool:
    """Whether the text writes more words with a capital than its names alone: German does with every noun."""
    capitals = total = 0
    for clause in clauses:
        total += max(0, len(clause) - 1)
        capitals += sum(token.capital for token in clause)
    return capitals > _CAPITALS_OF_NAMES * total


def _names(text: str) -> list[str]:
    return [word.casefold() for word in texts.words_of(text)]


class _Seen:
    """How a term is used in a text."""

    __slots__ = ("authors", "bracketed_only", "capital", "count", "question_only", "token")

    def __init__(self, token: Token) -> None:
        self.token = token
        self.count = 0
        self.capital = False
        self.authors: set[str] = set()
        self.question_only = True
        self.bracketed_only = True

    def add(self, token: Token, use: Use) -> None:
        self.count += 1
        self.capital |= token.capital
        self.authors.add(use.author)
        self.question_only &= use.question
        self.bracketed_only &= use.bracketed

    def score(self, quantile: float, capital: float) -> float:
        """Logarithm of the worth; `quantile` is the share of the text's words that are more common, `capital`
        what a capital counts."""
        return (
            _COMMON * min(quantile, _RARE_FROM)
            + _RARE * max(0.0, quantile - _RARE_FROM)
            + _DIGIT * self.token.digit
            + capital * self.capital
            + _REPEATED * math.log(self.count)
            + _SHARED * (len(self.authors) > 1)
            + _ASKED_ONLY * self.question_only
            + _BRACKETED_ONLY * self.bracketed_only
        )
