"""What a draft is made from, read out of messages or of earlier summaries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from schemas.summaries import Rule, Summary, TimelineLine
from services.summaries.cues import cues, fold
from services.summaries.extractive.units import Unit, from_lines, from_messages
from services.summaries.port import SourceMessage

_PROMISE_WORDS = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """`units` make up the timeline. `promises`, `facts` and `state` are texts that stand already, oldest first.
    `promised` are units that promise something, `latest` those that a first summary takes its state from."""

    units: tuple[Unit, ...]
    speakers: tuple[str, ...]
    promises: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    state: tuple[str, ...] = ()
    promised: tuple[tuple[Unit, ...], ...] = ()
    latest: tuple[Unit, ...] = ()


def of_messages(messages: Sequence[SourceMessage], rules: Sequence[Rule]) -> Reading:
    """Messages, without what the rules quote of them: that is kept already."""
    quoted: dict[str, list[str]] = {}
    for rule in rules:
        quoted.setdefault(rule.message_id or "", []).append(rule.quote)
    units = from_messages(messages, quoted)
    last = max((unit.message for unit in units), default=0)
    return Reading(
        units=tuple(units),
        speakers=_distinct(unit.author for unit in units),
        promised=_promised(units),
        latest=tuple(
            unit for unit in units if unit.message >= last - 1 and not unit.question and not unit.bracketed
        ),
    )


def of_summaries(sources: Sequence[Summary]) -> Reading:
    """Contiguous summaries, oldest first. What held at the end of all but the newest one is history by now: it joins
    the timeline."""
    lines, edited = [], []
    for number, source in enumerate(sources):
        past = () if number == len(sources) - 1 else source.body.state
        entries = [
            *source.body.timeline,
            *(_at_end(text, source) for text in past),
        ]
        lines.extend(entries)
        edited.extend([source.edited_at is not None] * len(entries))
    units = from_lines(lines, edited)
    return Reading(
        units=tuple(units),
        speakers=_distinct(unit.author for unit in units),
        promises=_distinct(text for source in sources for text in source.body.promises),
        facts=_distinct(text for source in sources for text in source.body.facts),
        state=sources[-1].body.state if sources else (),
        promised=_promised(units),
    )


def _promised(units: Sequence[Unit]) -> tuple[tuple[Unit, ...], ...]:
    """Units with a cue of a promise; a short one ("I promise you, ...") with what follows in its sentence."""
    promise = cues().promise
    found: list[tuple[Unit, ...]] = []
    last = -1
    for at, unit in enumerate(units):
        if at <= last or unit.question or not promise.search(fold(unit.text)):
            continue
        last = at
        while (
            not units[last].closes
            and sum(len(part.tokens) for part in units[at : last + 1]) < _PROMISE_WORDS
            and last + 1 < len(units)
            and units[last + 1].message == unit.message
        ):
            last += 1
        found.append(tuple(units[at : last + 1]))
    return tuple(found)


def _at_end(text: str, source: Summary) -> TimelineLine:
    return TimelineLine(text=text, first_seq=source.span.last_seq, last_seq=source.span.last_seq)


def _distinct(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text.strip()))
