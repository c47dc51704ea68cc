"""The checks of a chat's summaries: contiguous in each tier and across them, and merges that can be taken apart (S2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from schemas.summaries import Summary, Tier
from services.audit.snapshot import Snapshot
from services.audit.spans import Piece, breaks, numbers

_ORDER = (Tier.long_term, Tier.merged, Tier.recent)


def _piece(summary: Summary) -> Piece:
    return Piece(summary.span.first_seq, summary.span.last_seq, f"{summary.tier} summary {summary.id}")


def tiers(snapshot: Snapshot) -> Iterator[str]:
    """In use: one long-term memory at the beginning, then merged and recent ones, up to the first message in no chunk.
    Only a chunk that waits for its summary may lie between them; before a merged one only where it was closed again."""
    waiting = [Piece(c.span.first_seq, c.span.last_seq, f"pending chunk {c.id}") for c in snapshot.chunks]
    yield from breaks([*map(_piece, snapshot.summaries), *waiting], 0, snapshot.end_of_chunks)
    long_term = [summary for summary in snapshot.summaries if summary.tier is Tier.long_term]
    if len(long_term) > 1:
        yield f"there are {len(long_term)} long-term memories"
    for summary in long_term:
        if summary.span.first_seq:
            yield f"{_piece(summary).where} does not begin with the first message"
    for summary in (*snapshot.summaries, *snapshot.merged_away.values()):
        if summary.chat_id != snapshot.chat:
            yield f"{_piece(summary).where} is of another chat"
    for summary in snapshot.summaries:
        if summary.id in snapshot.merged_away:
            yield f"{_piece(summary).where} is in use and merged away"
        if summary.tier is not Tier.recent and (first := _passed(snapshot, summary)) is not None:
            yield f"{_piece(summary).where} was merged past message {first}, which is still pending"


def _passed(snapshot: Snapshot, summary: Summary) -> int | None:
    """A pending message before the end of a merged summary that was pending already when that was made."""
    return next(
        (
            chunk.span.first_seq
            for chunk in snapshot.chunks
            if chunk.span.first_seq < summary.span.last_seq and chunk.generation <= summary.generation
        ),
        None,
    )


def due(snapshot: Snapshot) -> Iterator[str]:
    """At rest, summaries that were taken out of a merge are merged again: no lower tier is before a higher one, unless
    a chunk that waits for its summary holds them back."""
    held_back = min((chunk.span.first_seq for chunk in snapshot.chunks), default=snapshot.number("n"))
    in_order = sorted(snapshot.summaries, key=lambda summary: summary.span.first_seq)
    for before, after in pairwise(in_order):
        if _ORDER.index(after.tier) < _ORDER.index(before.tier) and after.span.first_seq < held_back:
            yield f"{_piece(before).where} is due to be merged, {_piece(after).where} comes after it"


def merges(snapshot: Snapshot) -> Iterator[str]:
    """The sources of every merge and compression are archived, contiguous, and cover what their successor covers."""
    parents: Counter[str] = Counter()
    for summary in (*snapshot.summaries, *snapshot.merged_away.values()):
        where, names = _piece(summary).where, summary.provenance.source_ids
        parents.update(names)
        if summary.tier is Tier.recent:
            if names:
                yield f"{where} has sources, a recent summary has none"
            if summary.provenance.chunk_ids != (summary.id,):
                yield f"{where} is not made of the chunk that it is named after"
            continue
        if not names:
            yield f"{where} names no sources"
        missing = [name for name in names if name not in snapshot.merged_away]
        if missing:
            yield f"{where}: {len(missing)} sources are not archived ({missing[0]})"
            continue
        sources = [snapshot.merged_away[name] for name in names]
        for detail in breaks(map(_piece, sources), summary.span.first_seq, summary.span.last_seq + 1):
            yield f"{where}: its sources leave a break: {detail}"
        counted = sum(source.span.messages for source in sources)
        if counted != summary.span.messages:
            yield f"{where} counts {summary.span.messages} messages, its sources {counted}"
        if summary.tier is Tier.merged:
            made_of = tuple(chunk for source in sources for chunk in source.provenance.chunk_ids)
            if summary.provenance.chunk_ids != made_of:
                yield f"{where} does not name the chunks of its sources"
    for name, count in parents.items():
        if count > 1:
            yield f"summary {name} was merged into {count} others"
    for name, summary in snapshot.merged_away.items():
        if not parents[name]:
            span = numbers(summary.span.first_seq, summary.span.last_seq)
            yield f"summary {name} ({span}) is archived and in no merge"
