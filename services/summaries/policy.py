"""The rules of the tiers, as pure functions: budgets, caps, and which summaries are to be merged next.

All sizes are tokens of a rendered summary without its rules: rules are never shortened (S5), so a bound that
counted them could not be kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

from schemas.chat import LEVELS, Level
from schemas.chunks import Span
from schemas.summaries import Rule, Summary, Tier, TimelineLine
from schemas.usage import Stage

CHUNK_SHARE = 0.15
CHUNK_FLOOR = 40
CHUNK_CEILING = 400
MERGED_CEILING = 800

GROUP = 4
"""So many summaries of a tier make one of the next (S2)."""

SLACK = 1.25
"""The long-term memory is compressed when it is this many times its cap (S4)."""

KEPT_IN_LONG_TERM: dict[Level, float] = {Level.key_events: 0.5, Level.balanced: 0.75, Level.detailed: 1.0}
"""Share of four merged summaries that the long-term memory takes over: old detail fades soonest at key_events (S3)."""


def chunk_budget(tokens: int) -> int:
    """Budget of a recent summary, for a chunk of `tokens`."""
    return max(CHUNK_FLOOR, min(CHUNK_CEILING, round(tokens * CHUNK_SHARE)))


def merged_budget(sources: Iterable[int]) -> int:
    """Budget of a merged summary, for recent summaries of these sizes: never longer than they were together."""
    return max(CHUNK_FLOOR, min(MERGED_CEILING, sum(sources)))


def long_term_cap(level: Level) -> int:
    """About how long the long-term memory may be (the table of W1)."""
    return LEVELS[level].long_term_tokens


def long_term_budget(long_term: int, merged: Iterable[int], level: Level) -> int:
    """Budget of the long-term memory that takes in four merged summaries. Over the cap it is compressed afterwards,
    so that one step does not both add to and rewrite all of it."""
    return long_term + max(CHUNK_FLOOR, round(sum(merged) * KEPT_IN_LONG_TERM[level]))


def over_cap(tokens: int, level: Level) -> bool:
    """Whether a long-term memory of this size is to be compressed to its cap (S4)."""
    return tokens > long_term_cap(level) * SLACK


def joined(spans: Sequence[Span]) -> Span:
    """One span in place of contiguous ones, oldest first."""
    first, last = spans[0], spans[-1]
    return Span(
        first_seq=first.first_seq,
        last_seq=last.last_seq,
        first_message=first.first_message,
        last_message=last.last_message,
        messages=sum(span.messages for span in spans),
    )


def passed_on(sources: Iterable[Summary]) -> tuple[Rule, ...]:
    """All rules of the sources, untouched and in order; the same quote of the same message once (S5)."""
    rules = (rule for source in sources for rule in source.body.rules)
    return tuple({(rule.quote, rule.message_id): rule for rule in rules}.values())


@dataclass(frozen=True, slots=True)
class Plan:
    """One step: `sources`, oldest first, become one summary of `tier`. A compression has one source."""

    stage: Stage
    tier: Tier
    sources: tuple[Summary, ...]

    @property
    def span(self) -> Span:
        """What the new summary covers."""
        return joined([source.span for source in self.sources])

    @property
    def stays(self) -> tuple[TimelineLine, ...]:
        """The timeline of a long-term memory that others join: it stays as it is until it is compressed, so that a
        step's cost does not grow with what is remembered, nothing fades before the cap, and a person's edit holds."""
        first = self.sources[0]
        joins = self.stage is Stage.merge and first.tier is Tier.long_term
        return first.body.timeline if joins else ()


def contiguous(summaries: Iterable[Summary]) -> list[Summary]:
    """The summaries from the chat's first message on, oldest first, up to the first gap."""
    found: list[Summary] = []
    expected = 0
    for summary in sorted(summaries, key=lambda summary: summary.span.first_seq):
        if summary.span.first_seq != expected:
            break
        found.append(summary)
        expected = summary.span.last_seq + 1
    return found


class Head(NamedTuple):
    """What of a summary tells that nothing is due. `tokens` include the rules."""

    tier: Tier
    tokens: int
    level: Level


def idle(heads: Sequence[Head]) -> bool:
    """Whether `next_merge` certainly finds nothing: too few of each tier, and no long-term memory over its cap."""
    tiers = Counter(head.tier for head in heads)
    if max(tiers[Tier.recent], tiers[Tier.merged]) >= GROUP:
        return False
    return not any(head.tier is Tier.long_term and over_cap(head.tokens, head.level) for head in heads)


def next_merge(summaries: Iterable[Summary], size: Callable[[Summary], int]) -> Plan | None:
    """What to do next with the summaries in use, or None. `size` gives a summary's tokens without its rules.

    Only what is contiguous from the chat's first message on takes part: a chunk that is still without a summary
    holds back the ones after it, and no merge ever spans a gap. The cap is that of the level at which the
    long-term memory was made: a changed level leaves it alone until it merges again (S7).
    """
    chain = contiguous(summaries)
    long_term = [summary for summary in chain if summary.tier is Tier.long_term]
    if long_term:
        newest = long_term[-1]
        level = newest.provenance.level
        # `tokens` include the rules and are at hand; the exact size has to be counted
        if over_cap(newest.tokens, level) and over_cap(size(newest), level):
            return Plan(Stage.compress, Tier.long_term, (newest,))
    rest = chain[len(long_term) :]
    merged = _run(rest, Tier.merged)
    if len(merged) >= GROUP:
        return Plan(Stage.merge, Tier.long_term, (*long_term, *merged[:GROUP]))
    first = next((at for at, summary in enumerate(rest) if summary.tier is Tier.recent), len(rest))
    recent = _run(rest[first:], Tier.recent)
    # a group that was taken apart stands before summaries of a higher tier, and is merged again when it is complete
    if len(recent) >= GROUP:
        return Plan(Stage.merge, Tier.merged, tuple(recent[:GROUP]))
    return None


def _run(chain: Sequence[Summary], tier: Tier) -> list[Summary]:
    """The summaries of this tier at the head of the chain."""
    return list(takewhile(lambda summary: summary.tier is tier, chain))
