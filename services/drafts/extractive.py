"""The drafter without a model: takes a description apart, and picks the clauses of messages that say most.

Nothing in it knows a language; it uses what the extractive summariser is made of. Rules that a user stated come first,
word for word.
"""

from __future__ import annotations

import asyncio
import unicodedata
from collections.abc import Iterator, Sequence

from schemas import limits
from schemas.summaries import Rule
from services.drafts.policy import shortened, tidy
from services.drafts.port import Draft, Drafts
from services.summaries import text as texts
from services.summaries.extractive import MODEL, composition
from services.summaries.extractive.selection import choose, worthwhile
from services.summaries.extractive.summariser import readable
from services.summaries.extractive.terms import Use, weights
from services.summaries.extractive.units import Unit, from_messages, joined
from services.summaries.port import SourceMessage
from services.summaries.rules import find_rules
from services.tokens.counter import TokenCounter

PROMPT_VERSION = "extractive-drafts-1"

_TOKENS = 300
"""Of all drafts together, about: five sentences."""

_SENTENCE_CHARACTERS = 240
_LEAST = 0.5
"""Clauses under this share of the median worth per token are small talk."""


class Extractive:
    """See services.drafts.port.Drafter. Deterministic; it computes in a thread, off the event loop."""

    def __init__(self, count: TokenCounter) -> None:
        self._count = count

    @property
    def model(self) -> str:
        """As the extractive summariser: it costs nothing."""
        return MODEL

    async def from_description(self, description: str) -> Drafts:
        """All of the description, in up to five pieces."""
        drafts = await asyncio.to_thread(lambda: tidy(Draft(part) for part in parts(description)))
        return self._drafts(drafts, self._count(description))

    async def from_messages(self, messages: Sequence[SourceMessage]) -> Drafts:
        """See Drafter."""
        drafts = await asyncio.to_thread(self._chosen, messages)
        return self._drafts(drafts, sum(message.tokens for message in messages))

    async def close(self) -> None:
        """Nothing is held."""

    def _chosen(self, messages: Sequence[SourceMessage]) -> tuple[Draft, ...]:
        numbers = {message.id: number for number, message in enumerate(messages)}
        rules = find_rules(messages)
        found = [
            (numbers[rule.message_id], Draft(_said(rule), (rule.message_id,)))
            for rule in rules[: limits.DRAFTS]
            if rule.message_id is not None
        ]
        for unit in self._best(messages, rules)[: limits.DRAFTS - len(found)]:
            said = shortened(composition.said([unit]))
            found.append((unit.message, Draft(said, (messages[unit.message].id,))))
        return tidy(draft for _, draft in sorted(found, key=lambda each: each[0]))

    def _best(self, messages: Sequence[SourceMessage], rules: Sequence[Rule]) -> list[Unit]:
        """Sentences in the order of what they are worth."""
        quoted: dict[str, list[str]] = {}
        for rule in rules:
            quoted.setdefault(rule.message_id or "", []).append(rule.quote)
        units = list(_sentences(from_messages(readable(messages), quoted)))
        worth = weights(
            [Use(unit.tokens, unit.author, unit.question, unit.bracketed) for unit in units],
            {unit.author for unit in units},
        )
        candidates = [unit for unit in worthwhile(units, worth, _LEAST, self._count) if not unit.remark]
        return choose(candidates, worth, _TOKENS, count=self._count)

    def _drafts(self, drafts: tuple[Draft, ...], tokens_in: int) -> Drafts:
        tokens_out = sum(self._count(draft.text) for draft in drafts)
        return Drafts(drafts, MODEL, PROMPT_VERSION, tokens_in, tokens_out)


def _said(rule: Rule) -> str:
    return shortened(texts.one_line(f"{rule.author}: {rule.quote}" if rule.author else rule.quote))


def _sentences(units: Sequence[Unit]) -> Iterator[Unit]:
    """The clauses of a sentence as one, as far as it stays short."""
    held: list[Unit] = []
    for unit in units:
        fits = sum(len(part.raw) for part in held) + len(unit.raw) <= _SENTENCE_CHARACTERS
        if held and (held[-1].closes or held[-1].message != unit.message or not fits):
            yield joined(held)
            held = []
        held.append(unit)
    if held:
        yield joined(held)


def parts(text: str) -> list[str]:
    """All of a text in at most five pieces of at most 500 characters, between sentences where they allow it.

    A text of twice that length always has room: of six neighbours there are two that fit together.
    """
    ranges = [piece for start, end in texts.sentences(text) for piece in _bounded(text, start, end)]
    while len(ranges) > limits.DRAFTS:
        at = min(range(len(ranges) - 1), key=lambda at: ranges[at + 1][1] - ranges[at][0])
        ranges[at : at + 2] = [(ranges[at][0], ranges[at + 1][1])]
    return [text[start:end] for start, end in ranges]


def _bounded(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """A sentence in pieces that are short enough: cut between clauses, else between words, else anywhere but before
    a combining mark."""
    limit = limits.MEMORY_CHARACTERS
    while end - start > limit:
        starts = [start + clause.start for clause in texts.clauses(text[start : start + limit])]
        cut = starts[-1] if len(starts) > 1 else text.rfind(" ", start + 1, start + limit)
        if cut <= start:
            cut = start + limit
            while cut > start + 1 and unicodedata.combining(text[cut]):
                cut -= 1
        yield from texts.trimmed(text, start, cut)
        start = cut
    yield from texts.trimmed(text, start, end)
