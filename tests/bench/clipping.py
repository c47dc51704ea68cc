"""A summariser that clips: long histories are made with it in seconds. For benchmarks whose subject is not the text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from schemas.chat import Level
from schemas.summaries import Body, Summary, Tier, TimelineLine
from services.summaries.port import Draft, SourceMessage

CHARACTERS_A_TOKEN = 3
"""Less than in any text of the load, so that a budget holds without counting."""


class Clipping:
    """Implements services.summaries.port.Summariser."""

    @property
    def model(self) -> str:
        """Booked like any other."""
        return "clipping"

    async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
        """The beginning of each message."""
        room = budget * CHARACTERS_A_TOKEN // len(messages)
        lines = [
            TimelineLine(text=message.text[: max(8, room)], first_seq=message.seq, last_seq=message.seq)
            for message in messages
        ]
        return self._draft(lines, sum(message.tokens for message in messages))

    async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
        """Lines of the sources, evenly, as many as fit."""
        lines = [line for source in sources for line in source.body.timeline]
        return self._draft(_thinned(lines, budget), sum(source.tokens for source in sources))

    async def compress(self, source: Summary, *, level: Level, budget: int) -> Draft:
        """The same with one source."""
        return self._draft(_thinned(source.body.timeline, budget), source.tokens)

    async def close(self) -> None:
        """Nothing is open."""

    def _draft(self, lines: Iterable[TimelineLine], tokens_in: int) -> Draft:
        timeline = tuple(lines)
        written = sum(len(line.text) for line in timeline) // CHARACTERS_A_TOKEN
        return Draft(Body(timeline=timeline), self.model, "clipping-1", tokens_in, written)


def _thinned(lines: Sequence[TimelineLine], budget: int) -> list[TimelineLine]:
    kept = list(lines)
    while len(kept) > 1 and sum(len(line.text) + 1 for line in kept) > budget * CHARACTERS_A_TOKEN:
        kept = kept[1::2]
    return kept
