"""The checks of a chat's summaries: contiguous in each tier and across them, and merges that can be taken apart (S2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from schemas.summaries import Summary, Tier
from services.audit.snapshot import Snapshot
from services.audit.spans import Piece, breaks, numbers

_ORDER = (Tier.long_term, Tier.merged, Tier.recent)


def _piece(summary: Summary) -> Piece:
    return Piece(summary.span.first_seq, summary.span.last_seq, f"{summary.tier} summary {summary.id}")


def tiers(snapshot: Snapshot) -> Iterator[str]:
    """In use: the long-term memory, merged ones, recent ones, in this order from message 0 up to the first pending
    turn. Only a chunk that still waits for its summary may lie between them."""
    waiting = [Piece(c.span.first_seq, c.span.last_seq, f"pending chunk {c.id}") for c in snapshot.chunks]
    unchunked = sum(turn.size for turn in (*snapshot.live, *snapshot.pending))
    pieces = [*map(_piece, snapshot.summaries), *waiting]
    yield from breaks(pieces, 0, snapshot.number("n") - unchunked)
    in_order = sorted(snapshot.summaries, key=lambda summary: summary.span.first_seq)
    ranks = [_ORDER.index(summary.tier) for summary in in_order]
    for at in range(1, len(ranks)):
        if ranks[at] < ranks[at - 1]:
            yield f"{_piece(in_order[at]).where} comes after {_piece(in_order[at - 1]).where}"
    if ranks.count(0) > 1:
        yield f"there are {ranks.count(0)} long-term memories"
    for summary in snapshot.summaries:
        if summary.chat_id != snapshot.chat:
            yield f"{_piece(summary).where} is of another chat"
        if summary.id in snapshot.merged_away:
            yield f"{_piece(summary).where} is in use and merged away"
        if summary.tier is not Tier.recent and (first := _hole_before(waiting, summary)) is not None:
            yield f"{_piece(summary).where} was merged past message {first}, which is still pending"


def _hole_before(waiting: list[Piece], summary: Summary) -> int | None:
    return next((piece.first for piece in waiting if piece.first < summary.span.last_seq), None)


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
