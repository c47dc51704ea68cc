"""The checks of one chat's window: every message in one place, and every counter true (W4, W6)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest

from services.audit.report import Check, Finding, Severity
from services.audit.snapshot import Snapshot, Turn
from services.audit.spans import Piece, breaks, numbers
from services.audit.takeback import derived, memory_turns
from services.audit.tiers import due, merges, tiers
from services.state.deleted import MARK
from services.state.ids import chunk_id

MARK_FIELDS = frozenset({"ep", "pa", "of", "g", "v", MARK})
"""What the window of a deleted chat still has."""

SHOWN = 3
"""Examples named in one finding."""


def check(snapshot: Snapshot, *, at_rest: bool) -> Iterator[Finding]:
    """Everything that one moment's state shows, without the archived messages (services/audit/archives.py)."""
    parts: dict[Check, tuple[Callable[[Snapshot], Iterator[str]], ...]] = {
        Check.coverage: (coverage,),
        Check.window: (counters, held),
        Check.turns: (turn_table, turn_order, message_ids, memory_turns),
        Check.chunks: (chunks, archive_order),
        Check.tiers: (tiers, due) if at_rest else (tiers,),
        Check.merges: (merges,),
        Check.taken_back: (derived,),
        Check.deleted: (deleted_messages,),
    }
    for name, checks in parts.items():
        for part in checks:
            for detail in part(snapshot):
                yield Finding(snapshot.chat, name, detail)
    unfinished = Severity.error if at_rest else Severity.warning
    yield from unconfirmed(snapshot, unfinished)
    for id, rollback in snapshot.rollbacks.items():
        detail = f"rollback {id} of user {rollback.user_id} has not taken effect"
        yield Finding(snapshot.chat, Check.rollback, detail, unfinished)
        if rollback.chat_id != snapshot.chat or rollback.generation > snapshot.number("g"):
            yield Finding(snapshot.chat, Check.rollback, f"rollback {id} is not of this chat as it is")


def unconfirmed(snapshot: Snapshot, severity: Severity) -> Iterator[Finding]:
    """What was decided to be published and is not known to be."""
    for agent, count in snapshot.outboxes.items():
        if count:
            detail = f"{count} entries of {agent} are not confirmed"
            yield Finding(snapshot.chat, Check.outbox, detail, severity)


def check_deleted(snapshot: Snapshot, keys: Iterable[str], *, at_rest: bool) -> Iterator[Finding]:
    """Of a deleted chat nothing is left but the mark, and what is still to be published. `keys`: what is there else."""
    for key in keys:
        yield Finding(snapshot.chat, Check.deleted, f"the chat was deleted, its key {key} is still there")
    for field in sorted(snapshot.fields.keys() - MARK_FIELDS):
        yield Finding(snapshot.chat, Check.deleted, f"the chat was deleted, its field {field} is still there")
    yield from unconfirmed(snapshot, Severity.error if at_rest else Severity.warning)


def _turn_pieces(turns: tuple[Turn, ...], where: str) -> list[Piece]:
    return [Piece(turn.first, turn.last, where) for turn in turns]


def _chunk_pieces(snapshot: Snapshot) -> list[Piece]:
    closed = [Piece(c.span.first_seq, c.span.last_seq, f"pending chunk {c.id}") for c in snapshot.chunks]
    summarised = snapshot.summarised().items()
    return closed + [
        Piece(span.first_seq, span.last_seq, f"summarised chunk {id}") for id, span in summarised
    ]


def coverage(snapshot: Snapshot) -> Iterator[str]:
    """Chunks, then pending turns, then live turns hold 0..n-1, each number once and in order.

    Only where the window was filled again, after something was taken back, the oldest live turns are in the newest
    chunks as well; then no turn is pending.
    """
    groups = (
        _chunk_pieces(snapshot),
        _turn_pieces(snapshot.pending, "pending"),
        _turn_pieces(snapshot.alone, "live"),
    )
    yield from breaks([piece for group in groups for piece in group], 0, snapshot.number("n"))
    newest = -1
    for group in groups:
        for piece in group:
            if piece.first <= newest:
                yield f"{numbers(piece.first, piece.last)} ({piece.where}) after what is newer"
        newest = max([newest, *(piece.last for piece in group)])
    for turns, where in ((snapshot.pending, "pending"), (snapshot.live, "live")):
        if list(turns) != sorted(turns):
            yield f"the {where} turns are not in order"
    yield from _overlap(snapshot)


def _overlap(snapshot: Snapshot) -> Iterator[str]:
    covered, twice = snapshot.covered, [turn for turn in snapshot.live if turn.first < snapshot.covered]
    if not 0 <= covered <= snapshot.end_of_chunks:
        yield f"co says {covered}, the chunks end at {snapshot.end_of_chunks}"
    if twice:
        yield from breaks(_turn_pieces(tuple(twice), "live, in a chunk as well"), twice[0].first, covered)
        if snapshot.pending:
            yield f"{numbers(twice[0].first, twice[-1].last)} live again, beside what is pending"


def counters(snapshot: Snapshot) -> Iterator[str]:
    """lm lt lf, pm pt pf, sm, tn and ci say what the lists hold."""
    live, pending, end = snapshot.live, snapshot.pending, snapshot.number("n")
    live_messages, pending_messages = sum(t.size for t in live), sum(t.size for t in pending)
    summarised = snapshot.summarised()
    expected = {
        "lm": live_messages,
        "lt": sum(turn.tokens for turn in live),
        "lf": end - live_messages,
        "pm": pending_messages,
        "pt": sum(turn.tokens for turn in pending),
        "pf": end - live_messages - pending_messages,
        "sm": sum(span.messages for span in summarised.values()),
        "tn": len(snapshot.turns),
        "ci": len(summarised.keys() | {chunk.id for chunk in snapshot.chunks}),
    }
    for field, value in expected.items():
        if snapshot.number(field) != value:
            yield f"{field} says {snapshot.fields.get(field, 'nothing')}, it should be {value}"
    if end and not live:
        yield "the newest turn is not live"


def held(snapshot: Snapshot) -> Iterator[str]:
    """Exactly the live and pending messages are stored, and their tokens are those of their turns and chunks."""
    ranges = [(turn.first, turn.last, turn.tokens) for turn in (*snapshot.live, *snapshot.pending)]
    ranges += [(c.span.first_seq, c.span.last_seq, c.tokens) for c in snapshot.chunks]
    expected = {seq for first, last, _ in ranges for seq in range(first, last + 1)}
    yield from _examples(expected - snapshot.messages.keys(), "live or pending but not stored")
    yield from _examples(snapshot.messages.keys() - expected, "stored but neither live nor pending")
    for first, last, tokens in ranges:
        stored = [snapshot.messages[seq].tokens for seq in range(first, last + 1) if seq in snapshot.messages]
        if len(stored) == last - first + 1 and sum(stored) != tokens:
            yield f"{numbers(first, last)}: {sum(stored)} tokens, the turn or chunk says {tokens}"


def turn_table(snapshot: Snapshot) -> Iterator[str]:
    """The turn table holds 0..n-1 as well, and agrees with the lists and with each message's turn."""
    pieces = [
        Piece(entry.first, entry.first + entry.size - 1, f"turn {id}") for id, entry in snapshot.turns.items()
    ]
    for detail in breaks(pieces, 0, snapshot.number("n")):
        yield f"turn table: {detail}"
    spans = {(entry.first, entry.size) for entry in snapshot.turns.values()}
    for turn in (*snapshot.live, *snapshot.pending):
        if (turn.first, turn.size) not in spans:
            yield f"{numbers(turn.first, turn.last)} listed as a turn that the turn table does not have"
    for seq, message in snapshot.messages.items():
        entry = snapshot.turns.get(message.turn)
        if entry is None or not entry.first <= seq < entry.first + entry.size:
            yield f"message {seq} says that it is of turn {message.turn}, the turn table does not"


def turn_order(snapshot: Snapshot) -> Iterator[str]:
    """The order of turns names every turn once, from the first one on, and a turn names its messages."""
    expected = sorted(snapshot.turns, key=lambda id: snapshot.turns[id].first)
    if list(snapshot.turn_order) != expected:
        pairs = zip_longest(snapshot.turn_order, expected)
        at = next(place for place, (found, wanted) in enumerate(pairs) if found != wanted)
        found = snapshot.turn_order[at] if at < len(snapshot.turn_order) else "nothing"
        wanted = expected[at] if at < len(expected) else "nothing"
        yield f"place {at} of the order of turns has {found}, it should be {wanted}"
    for id, entry in snapshot.turns.items():
        numbered = [snapshot.numbers.get(message) for message in entry.messages]
        if numbered != list(range(entry.first, entry.first + entry.size)):
            yield f"turn {id} names other messages than {numbers(entry.first, entry.first + entry.size - 1)}"


def deleted_messages(snapshot: Snapshot) -> Iterator[str]:
    """A message that was deleted keeps its place, and nothing that it said."""
    for seq, message in snapshot.messages.items():
        if message.deleted and (message.print or message.tokens):
            yield f"message {seq} was deleted and still has a text"


def message_ids(snapshot: Snapshot) -> Iterator[str]:
    """Ids and numbers of messages are one to one, and every list uses them alike."""
    yield from _examples(set(range(snapshot.number("n"))) - set(snapshot.numbers.values()), "without an id")
    if len(snapshot.numbers) > snapshot.number("n"):
        yield f"{len(snapshot.numbers)} message ids for {snapshot.number('n')} messages"
    named = {(message.id, seq) for seq, message in snapshot.messages.items()}
    for turn in (*snapshot.live, *snapshot.pending):
        named |= {(turn.first_id, turn.first), (turn.last_id, turn.last)}
    spans = [chunk.span for chunk in snapshot.chunks]
    spans += [summary.span for summary in (*snapshot.summaries, *snapshot.merged_away.values())]
    for span in spans:
        named |= {(span.first_message, span.first_seq), (span.last_message, span.last_seq)}
    for id, seq in sorted(named, key=lambda pair: pair[1]):
        if snapshot.numbers.get(id) != seq:
            yield f"message {seq} is called {id}, which has number {snapshot.numbers.get(id, 'none')}"


def chunks(snapshot: Snapshot) -> Iterator[str]:
    """Chunks of both kinds are contiguous from 0, an index is a chunk's place, an id says what it covers."""
    summarised = snapshot.summarised()
    for detail in breaks(_chunk_pieces(snapshot), 0, snapshot.end_of_chunks):
        yield f"chunks: {detail}"
    spans = {**summarised, **{chunk.id: chunk.span for chunk in snapshot.chunks}}
    place = {id: at for at, id in enumerate(sorted(spans, key=lambda id: spans[id].first_seq))}
    for chunk in snapshot.chunks:
        if chunk.id in summarised:
            yield f"chunk {chunk.id} has a summary and is still pending"
        if chunk.index != place[chunk.id]:
            yield f"chunk {chunk.id} has index {chunk.index} and is number {place[chunk.id]}"
        expected = chunk_id(snapshot.chat, chunk.generation, chunk.span.first_seq, chunk.span.last_seq)
        if chunk.id != expected:
            yield f"chunk {chunk.id} is not named after {numbers(chunk.span.first_seq, chunk.span.last_seq)}"
        if chunk.chat.id != snapshot.chat:
            yield f"chunk {chunk.id} is of another chat"
        if chunk.generation > snapshot.number("g"):
            yield f"chunk {chunk.id} is of generation {chunk.generation}, the chat has {snapshot.number('g')}"
    for id, span in spans.items():
        if span.messages != span.last_seq - span.first_seq + 1:
            yield f"chunk {id} counts {span.messages} in {numbers(span.first_seq, span.last_seq)}"


def archive_order(snapshot: Snapshot) -> Iterator[str]:
    """The order of the archive has every summarised chunk at its place, and nothing else but empty places."""
    summarised = snapshot.summarised()
    spans: Mapping[str, int] = {
        **{id: span.first_seq for id, span in summarised.items()},
        **{chunk.id: chunk.span.first_seq for chunk in snapshot.chunks},
    }
    inside = [id if id in summarised else "" for id in sorted(spans, key=lambda id: spans[id])]
    if len(snapshot.order) > len(inside):
        yield f"the order of the archive has {len(snapshot.order)} places for {len(inside)} chunks"
    for at in range(max(len(inside), len(snapshot.order))):
        expected = inside[at] if at < len(inside) else ""
        found = snapshot.order[at] if at < len(snapshot.order) else ""
        if found != expected:
            yield f"place {at} of the archive has {found or 'nothing'}, it should be {expected or 'nothing'}"


def _examples(found: set[int], what: str) -> Iterator[str]:
    if found:
        some = ", ".join(map(str, sorted(found)[:SHOWN]))
        yield f"{len(found)} messages are {what} ({some}{', ...' if len(found) > SHOWN else ''})"
