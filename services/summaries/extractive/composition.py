"""Lines of a summary from chosen units: in order, who said it once, clauses joined so that they read on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from schemas.summaries import TimelineLine
from services.summaries import text as texts
from services.summaries.extractive.units import SPEAKERS, Unit

_WEAK = " ,;:–—-，、；：،؛"
_STRONG = '.!?…。！？｡．؟۔।॥።։)]）】"”»」*'


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
    parts: list[str] = []
    before: Unit | None = None
    for unit in units:
        if before is not None:
            if unit.gap is not None and unit.position == before.position + 1:
                parts.append(unit.gap)
            else:
                parts[-1], gap = _ended(parts[-1])
                parts.append(gap)
        parts.append(unit.text)
        before = unit
    parts[-1] = parts[-1].rstrip(_WEAK) or parts[-1]
    return "".join(parts)


def _ended(text: str) -> tuple[str, str]:
    """A clause that is followed by one from elsewhere, and what goes between them."""
    kept = text.rstrip(_WEAK) or text
    last = kept[-1]
    if last in _STRONG:
        return kept, "" if last in "。！？｡．」】）" else " "
    if texts.is_unspaced(last):
        # Thai and its kin separate phrases by a space; Han and kana by full-width punctuation
        return kept, "；" if last >= "\u3000" else " "
    return kept, "; "
