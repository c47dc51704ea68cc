"""No derived text covers a message that was taken back, and none is older than what it is derived from (W7)."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.summaries import Summary, Tier
from services.audit.snapshot import Snapshot
from services.audit.spans import numbers
from services.state.ids import chunk_id, merged_id


def derived(snapshot: Snapshot) -> Iterator[str]:
    """Each summary, in use and archived, is of messages that the chat has, and of the generation that its name says.

    A chunk with a changed message is closed again under a later generation, and a merge never takes in what is newer
    than itself: so no summary can go on with what a message said before.
    """
    generation, end, by_hand = snapshot.number("g"), snapshot.number("n"), snapshot.by_hand()
    for summary in (*snapshot.summaries, *snapshot.merged_away.values()):
        where, span = f"{summary.tier} summary {summary.id}", summary.span
        if span.last_seq >= end:
            yield f"{where} covers {numbers(max(end, span.first_seq), span.last_seq)}, taken back"
        if summary.generation > generation:
            yield f"{where} is of generation {summary.generation}, the chat has {generation}"
        expected = _name(snapshot, summary)
        if expected is not None and summary.id != expected:
            yield f"{where} is not named after {numbers(span.first_seq, span.last_seq)} and its generation"
        for name in summary.provenance.source_ids:
            source = snapshot.merged_away.get(name)
            if source is not None and source.generation > summary.generation:
                yield f"{where} is older than its source {name}"
        if (summary.id, summary.version) not in by_hand:
            yield from _body(snapshot, summary, where)


def _name(snapshot: Snapshot, summary: Summary) -> str | None:
    """The id that a summary has to have; None for a compressed one, which keeps that of its first version."""
    span, made = summary.span, summary.provenance
    chat = made.chat_id or snapshot.chat
    if summary.tier is Tier.recent:
        return chunk_id(chat, summary.generation, span.first_seq, span.last_seq)
    if any("@" in name for name in made.source_ids):
        return None
    return merged_id(summary.tier, chat, summary.generation, span.first_seq, span.last_seq)


def _body(snapshot: Snapshot, summary: Summary, where: str) -> Iterator[str]:
    span = summary.span
    for line in summary.body.timeline:
        if not span.first_seq <= line.first_seq <= line.last_seq <= span.last_seq:
            outside = numbers(line.first_seq, line.last_seq)
            yield f"{where}: a line of its timeline is about {outside}, which it does not cover"
    for rule in summary.body.rules:
        if rule.message_id is not None:
            seq = snapshot.numbers.get(rule.message_id)
            if seq is None or not span.first_seq <= seq <= span.last_seq:
                yield f"{where}: a rule quotes message {rule.message_id}, which it does not cover"


def memory_turns(snapshot: Snapshot) -> Iterator[str]:
    """Only turns that the chat has are remembered to have written into saved memories."""
    for id in sorted(snapshot.memory_turns - snapshot.turns.keys()):
        yield f"turn {id} is remembered for what it wrote into memories, and is not in the turn table"
