"""Lines of a summary from chosen units: in order, who said it once, clauses joined so that they read on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from schemas.summaries import TimelineLine
from services.summaries import text as texts
from services.summaries.extractive.units import SPEAKERS, Unit, joined
from services.summaries.extractive.wording import ends_sentence

_FULL_WIDTH = "。！？｡．」』）】"


def lines(units: Iterable[Unit], periods: Sequence[int] = ()) -> list[TimelineLine]:
    """One line for each run of units of one speaker. Units before a seq in `periods` share one line per period:
    periods end before those seqs, ascending."""
    ordered = sorted(units, key=lambda unit: unit.position)
    found: list[TimelineLine] = []
    for period, group in groupby(ordered, key=lambda unit: _period(unit, periods)):
        runs = [list(run) for _, run in groupby(group, key=lambda unit: unit.author)]
        if period is None:
            found.extend(_line([run]) for run in runs)
        else:
            found.append(_line(runs))
    return found


def said(units: Sequence[Unit]) -> str:
    """One line: the speaker of the first unit, and what all of them say."""
    return _joined(units) if not units[0].author else f"{units[0].author}: {_joined(units)}"


def _period(unit: Unit, periods: Sequence[int]) -> int | None:
    return next((end for end in periods if unit.first_seq < end), None)


def _line(runs: Sequence[Sequence[Unit]]) -> TimelineLine:
    units = [unit for run in runs for unit in run]
    return TimelineLine(
        text=SPEAKERS.join(said(run) for run in runs),
        first_seq=min(unit.first_seq for unit in units),
        last_seq=max(unit.last_seq for unit in units),
    )


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
        text = joined(run).text if len(run) > 1 else run[0].text
        if parts:
            parts.append(_between(parts[-1]))
        parts.append(text)
    return "".join(parts)


def _between(before: str) -> str:
    """What goes between a clause and one from elsewhere. Full-width marks need no space after them."""
    if ends_sentence(before):
        return "" if before[-1] in _FULL_WIDTH else " "
    return "；" if texts.is_unspaced(before[-1]) and before[-1] >= "\u3000" else "; "
