"""What the words of a text are worth, without knowing its language.

A token's number in the `o200k_base` vocabulary grows with its rarity in text of many languages. It is used only in
comparison with the other words of the same text, so a language whose words are all far down the vocabulary is
treated like English.
"""

from __future__ import annotations

import math
from collections import Counter
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
    found_in = _Found(uses)
    capital = _CAPITAL_OF_NOUN if capitals_are_common(use.tokens for use in uses) else _CAPITAL
    begun = {name[:end] for text in known for name in _names(text) for end in range(3, len(name) + 1)}
    quantiles = _quantiles(token.commonness for use in uses for token in use.tokens)
    return {
        term: 0.0 if term in begun else math.exp(found_in.score(token, quantiles[token.commonness], capital))
        for term, token in found_in.tokens.items()
    }


def _quantiles(values: Iterable[float]) -> dict[float, float]:
    """For each value the share of the others that are lower, half of those like it among them."""
    counts = Counter(values)
    found: dict[float, float] = {}
    low, total = 0, counts.total()
    for value in sorted(counts):
        high = low + counts[value]
        found[value] = (low + high) / 2 / total
        low = high
    return found


def capitals_are_common(clauses: Iterable[Sequence[Token]]) -> bool:
    """Whether the text writes more words with a capital than its names alone: German does with every noun."""
    capitals = total = 0
    for clause in clauses:
        total += max(0, len(clause) - 1)
        capitals += sum([token.capital for token in clause])
    return capitals > _CAPITALS_OF_NAMES * total


def _names(text: str) -> list[str]:
    return [word.casefold() for word in texts.words_of(text)]


class _Found:
    """How the terms of a text are used in it."""

    def __init__(self, uses: Iterable[Use]) -> None:
        self.tokens: dict[str, Token] = {}
        self._counts: Counter[str] = Counter()
        self._capitals: set[str] = set()
        self._stated: set[str] = set()
        self._open: set[str] = set()
        self._author: dict[str, str] = {}
        self._shared: set[str] = set()
        for use in uses:
            words = {token.term: token for token in use.tokens}
            self._counts.update([token.term for token in use.tokens])
            self._capitals.update([token.term for token in use.tokens if token.capital])
            self._shared.update(
                [term for term in words if self._author.setdefault(term, use.author) != use.author]
            )
            if not use.question:
                self._stated.update(words)
            if not use.bracketed:
                self._open.update(words)
            self.tokens |= words

    def score(self, token: Token, quantile: float, capital: float) -> float:
        """Logarithm of a term's worth; `quantile` is the share of the text's words that are more common, `capital`
        what a capital counts."""
        term = token.term
        return (
            _COMMON * min(quantile, _RARE_FROM)
            + _RARE * max(0.0, quantile - _RARE_FROM)
            + _DIGIT * token.digit
            + capital * (term in self._capitals)
            + _REPEATED * math.log(self._counts[term])
            + _SHARED * (term in self._shared)
            + _ASKED_ONLY * (term not in self._stated)
            + _BRACKETED_ONLY * (term not in self._open)
        )
