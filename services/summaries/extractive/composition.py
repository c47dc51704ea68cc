"""Lines of a summary from chosen units: in order, who said it once, clauses joined so that they read on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import attrgetter

from schemas.summaries import TimelineLine
from services.summaries import text as texts
from services.summaries.extractive.units import SPEAKERS, Unit, together
from services.summaries.extractive.wording import ends_sentence

_FULL_WIDTH = "。！？｡．」』）】"
_position = attrgetter("position")


def lines(units: Iterable[Unit], periods: Sequence[int] = ()) -> list[TimelineLine]:
    """One line for each run of units of one speaker. Units before a seq in `periods` share one line per period:
    periods end before those seqs, ascending."""
    return [
        TimelineLine(
            text=SPEAKERS.join(map(said, runs)),
            first_seq=min(unit.first_seq for run in runs for unit in run),
            last_seq=max(unit.last_seq for run in runs for unit in run),
        )
        for runs in _rows(units, periods)
    ]


class Lines:
    """The texts of those lines, for choices that have most of their lines in common: each is made once."""

    def __init__(self) -> None:
        self._said: dict[tuple[Unit, ...], str] = {}

    def __call__(self, units: Iterable[Unit], periods: Sequence[int] = ()) -> list[str]:
        """The texts of `lines`, in order."""
        return [SPEAKERS.join(map(self._run, runs)) for runs in _rows(units, periods)]

    def _run(self, units: Sequence[Unit]) -> str:
        run = tuple(units)
        text = self._said.get(run)
        if text is None:
            text = self._said[run] = said(run)
        return text


def said(units: Sequence[Unit]) -> str:
    """One line: the speaker of the first unit, and what all of them say."""
    return _joined(units) if not units[0].author else f"{units[0].author}: {_joined(units)}"


def _period(unit: Unit, periods: Sequence[int]) -> int | None:
    return next((end for end in periods if unit.first_seq < end), None)


def _rows(units: Iterable[Unit], periods: Sequence[int]) -> list[list[list[Unit]]]:
    """For each line its runs, for each run its units."""
    rows: list[list[list[Unit]]] = []
    author: str | None = None
    before: int | None = None
    for unit in sorted(units, key=_position):
        period = _period(unit, periods) if periods else None
        if rows and period is not None and period == before:
            if unit.author == author:
                rows[-1][-1].append(unit)
            else:
                rows[-1].append([unit])
        elif rows and period is before is None and unit.author == author:
            rows[-1][-1].append(unit)
        else:
            rows.append([[unit]])
        author, before = unit.author, period
    return rows


def _joined(units: Sequence[Unit]) -> str:
    """What the units say: those that follow each other in the source as there, others as sentences, or with a semicolon
    between them."""
    runs: list[list[Unit]] = []
    for unit in units:
        if runs and unit.gap is not None and unit.position == runs[-1][-1].position + 1:
            runs[-1].append(unit)
        else:
            runs.append([unit])
    parts: list[str] = []
    for run in runs:
        text = together(run) if len(run) > 1 else run[0].text
        if parts:
            parts.append(_between(parts[-1]))
        parts.append(text)
    return "".join(parts)


def _between(before: str) -> str:
    """What goes between a clause and one from elsewhere. Full-width marks need no space after them."""
    if ends_sentence(before):
        return "" if before[-1] in _FULL_WIDTH else " "
    return "；" if texts.is_unspaced(before[-1]) and before[-1] >= "\u3000" else "; "
