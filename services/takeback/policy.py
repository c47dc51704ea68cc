"""What becomes of a chat when something is taken back (W7). Pure: from a Chat to the Changes of its keys.

Taking back from a message number on (rewind, regenerate): later turns go; a chunk that spans the point returns to pending,
cut at the point; touched summaries are taken apart; then the window is filled again with the newest messages that are
left, verbatim: pending turns return to it, turns of chunks are in it *and* in their chunk, which stays. `co` tells up to
which number. When they leave the window again, those whose chunk has its summary are simply dropped, and those whose
chunk still waits for it are pending as before: no chunk is opened, its summary may be under way and is paid for.

Changing one message (edit, delete): the chunk that has it is pending again, whole and at its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from schemas.chat import DEFAULT_LEVEL, ChatRef, Level
from schemas.chunks import ChunkClosed, Span
from schemas.delivery import Topics
from services.state import ids, outbox
from services.state.agents import WINDOW as AGENT
from services.state.keys import ChatKeys
from services.state.keys import outbox as outbox_key
from services.takeback.changes import Changes
from services.takeback.tree import Apart, take_apart
from services.takeback.values import Chat, Item, Row, TurnEntry
from services.window.policy import Bounds, bounds


@dataclass(slots=True)
class Plan:
    """`removed` are turns, oldest first; `memory` turns whose memory writes go, by user; `live` and `pending` the numbers
    of messages for the hint."""

    changes: Changes = field(default_factory=Changes)
    removed: list[TurnEntry] = field(default_factory=list)
    memory: dict[str, list[str]] = field(default_factory=dict)
    generation: int = 0
    version: int = 0
    live: int = 0
    pending: int = 0


@dataclass(slots=True)
class _Window:
    """Live and pending turns while they are moved. `covered`: below it, what is live is in a chunk as well."""

    limit: Bounds
    live: list[Item]
    pending: list[Item]
    covered: int
    chunks: int
    messages: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        self.messages = sum(item.size for item in self.live)
        self.tokens = sum(item.tokens for item in self.live)

    def take(self, item: Item) -> bool:
        """Put a turn before the live ones, where it fits; the newest turn always does (W4)."""
        messages, tokens = self.messages + item.size, self.tokens + item.tokens
        if self.live and (messages > self.limit.messages or tokens > self.limit.tokens):
            return False
        self.live.insert(0, item)
        self.messages, self.tokens = messages, tokens
        return True


def limit(chat: Chat) -> Bounds:
    """The bounds of the chat's level and last model (W1)."""
    level, context = chat.fields.get("lv"), chat.fields.get("cw")
    return bounds(Level(level) if level else DEFAULT_LEVEL, int(context) if context else None)


def _item(turn: TurnEntry, rows: Mapping[int, Row]) -> Item:
    tokens = sum(rows[seq].tokens for seq in range(turn.first, turn.end))
    return Item(turn.first, turn.size, tokens, turn.at, turn.messages[0], turn.messages[-1])


def cut(chat: Chat, at: int, limit: Bounds, *, refill: bool) -> Plan:
    """Every message from number `at` on goes. `chat` is loaded by reading.for_cut."""
    k = ChatKeys.of(chat.id)
    plan, changes = _begun(chat), Changes()
    apart = take_apart(chat.summaries, chat.archived, lambda _, last: last >= at)
    gone = [chunk for chunk in chat.chunks if chunk.span.last_seq >= at]
    opened = min([at, *(s.first for s in apart.chunks), *(chunk.span.first_seq for chunk in gone)])
    live = [item for item in chat.live if item.first < at]
    kept = {
        **chat.rows,
        **{seq: row for s in apart.chunks for seq, row in chat.archives.get(s.id, {}).items()},
    }
    border = live[0].first if live else at
    reopened = [_item(turn, kept) for turn in chat.turns if opened <= turn.first < border]
    window = _Window(
        limit,
        live,
        [*reopened, *(item for item in chat.pending if item.first < at)],
        min(chat.number("co"), opened),
        chat.number("ci") - len(apart.chunks) - len(gone),
    )
    changes.drop(k.chunks, [chunk.id for chunk in gone])
    _apart(changes, k, apart)
    changes.set(k.messages, {seq: kept[seq].dump() for seq in range(opened, at) if seq in kept})
    if refill:
        _fill(chat, k, window, changes)
    changes.shorten(k.archive_order, window.chunks)
    plan.removed = [turn for turn in chat.turns if turn.first >= at]
    plan.memory = _written(chat, plan.removed)
    changes.drop(k.messages, range(at, chat.number("n")))
    changes.drop(k.message_ids, [message for turn in plan.removed for message in turn.messages])
    changes.drop(k.turns, [turn.id for turn in plan.removed])
    # a turn that was taken back before its usage was published is known when it is delivered again (C1)
    changes.add(k.events, [ids.booked(turn.id, turn.digest) for turn in plan.removed])
    changes.drop(k.memory_users, [turn.id for turn in plan.removed])
    changes.shorten(k.turn_order, chat.number("tn") - len(plan.removed))
    changes.replace(k.live, map(str, window.live))
    changes.replace(k.pending, map(str, window.pending))
    newest = next((item.at for item in reversed([*window.pending, *window.live])), chat.number("at"))
    fields = {
        "n": at,
        "ci": window.chunks,
        "tn": chat.number("tn") - len(plan.removed),
        "sm": chat.number("sm") - sum(summary.messages for summary in apart.chunks),
        "co": window.covered,
        "at": newest,
    }
    waiting = [(c.span.first_seq, c.span.last_seq) for c in chat.chunks if c not in gone]
    _counters(plan, changes, k, chat, window.live, window.pending, waiting, fields)
    plan.changes = changes
    return plan


def _fill(chat: Chat, k: ChatKeys, window: _Window, changes: Changes) -> None:
    """The window takes back what fits: pending turns, then the turns of the newest chunks (W1)."""
    while window.pending and window.take(window.pending[-1]):
        window.pending.pop()
    if window.pending:
        return
    waiting = {chunk.index: chunk.span for chunk in chat.chunks}
    for place in range(window.chunks - 1, -1, -1):
        span = waiting.get(place)
        if span is None:
            rows = chat.archives.get(chat.order.get(place, ""), {})
        else:
            rows = {seq: row for seq, row in chat.rows.items() if span.first_seq <= seq <= span.last_seq}
        if not rows or not _overlap(chat, k, window, changes, rows):
            return


def _overlap(chat: Chat, k: ChatKeys, window: _Window, changes: Changes, rows: Mapping[int, Row]) -> bool:
    """Turns of a chunk are live as well. Whether all of them fitted."""
    first, last = min(rows), max(rows)
    border = window.live[0].first if window.live else last + 1
    for turn in reversed([turn for turn in chat.turns if first <= turn.first < min(border, last + 1)]):
        if not window.take(_item(turn, rows)):
            return False
        window.covered = max(window.covered, last + 1)
        gone = [seq for seq in range(turn.first, turn.end) if seq not in chat.rows]
        changes.set(k.messages, {seq: rows[seq].dump() for seq in gone})
    return True


def change(chat: Chat, seq: int, row: Row) -> Plan:
    """Message `seq` becomes `row`. `chat` is loaded by reading.for_edit."""
    k = ChatKeys.of(chat.id)
    plan, changes = _begun(chat), Changes()
    before = chat.rows[seq]
    apart = take_apart(chat.summaries, chat.archived, lambda first, last: first <= seq <= last)
    rows = {**chat.rows, seq: row}
    _apart(changes, k, apart)
    changes.set(k.messages, {seq: row.dump()})
    for summary in apart.chunks:
        place = next(place for place, id in chat.order.items() if id == summary.id)
        changes.put(k.archive_order, place, "")
        changes.set(k.messages, {at: rows[at].dump() for at in range(summary.first, summary.last + 1)})
        _close(chat, k, changes, plan.generation, place, summary.first, summary.last, rows)
    for chunk in chat.chunks:
        if chunk.span.first_seq <= seq <= chunk.span.last_seq:
            changes.drop(k.chunks, [chunk.id])
            span = chunk.span
            _close(chat, k, changes, plan.generation, chunk.index, span.first_seq, span.last_seq, rows)
    more = row.tokens - before.tokens
    live, pending = (
        [
            item._replace(tokens=item.tokens + more) if item.first <= seq < item.first + item.size else item
            for item in items
        ]
        for items in (chat.live, chat.pending)
    )
    changes.replace(k.live, map(str, live))
    changes.replace(k.pending, map(str, pending))
    fields = {"sm": chat.number("sm") - sum(summary.messages for summary in apart.chunks)}
    spans = [chunk.span for chunk in chat.chunks]
    waiting = [(span.first_seq, span.last_seq) for span in spans] + [(s.first, s.last) for s in apart.chunks]
    plan.memory = {chat.memory_users[before.turn]: [before.turn]} if before.turn in chat.memory_users else {}
    _counters(plan, changes, k, chat, live, pending, waiting, fields)
    plan.changes = changes
    return plan


def _close(
    chat: Chat,
    k: ChatKeys,
    changes: Changes,
    generation: int,
    index: int,
    first: int,
    last: int,
    rows: Mapping[int, Row],
) -> None:
    """The same messages are a pending chunk, under the new generation."""
    closed = ChunkClosed(
        id=ids.chunk_id(chat.id, generation, first, last),
        at=datetime.fromtimestamp(chat.number("at") / 1000, UTC),
        chat=ChatRef.model_validate_json(chat.fields["cj"]),
        user_id=chat.fields.get("u") or None,
        generation=generation,
        index=index,
        span=Span(
            first_seq=first,
            last_seq=last,
            first_message=rows[first].id,
            last_message=rows[last].id,
            messages=last - first + 1,
        ),
        tokens=sum(rows[seq].tokens for seq in range(first, last + 1)),
        level=Level(chat.fields["lv"]) if chat.fields.get("lv") else DEFAULT_LEVEL,
    )
    changes.set(k.chunks, {closed.id: closed.model_dump_json(exclude_none=True)})
    changes.set(outbox_key(chat.id, AGENT), {closed.id: outbox.entry(Topics.CHUNKS, chat.id, closed)})


def _begun(chat: Chat) -> Plan:
    return Plan(generation=chat.number("g") + 1, version=chat.number("v") + 1)


def _apart(changes: Changes, k: ChatKeys, apart: Apart) -> None:
    changes.drop(k.summaries, apart.gone)
    back = {summary.id: name for name, summary in apart.back.items()}
    changes.bring(k.summaries, k.archived_summaries, back)
    changes.drop(k.archived_summaries, apart.forgotten)
    changes.drop(k.archive, [summary.id for summary in apart.chunks])


def _written(chat: Chat, turns: list[TurnEntry]) -> dict[str, list[str]]:
    written: dict[str, list[str]] = {}
    for turn in turns:
        if turn.id in chat.memory_users:
            written.setdefault(chat.memory_users[turn.id], []).append(turn.id)
    return written


def _counters(
    plan: Plan,
    changes: Changes,
    k: ChatKeys,
    chat: Chat,
    live: list[Item],
    pending: list[Item],
    waiting: Iterable[tuple[int, int]],
    fields: dict[str, int],
) -> None:
    """`waiting`: first and last numbers of the chunks that no summary covers."""
    end = fields.get("n", chat.number("n"))
    live_messages = sum(item.size for item in live)
    pending_messages = sum(item.size for item in pending)
    plan.live = live_messages
    border = end - live_messages
    plan.pending = pending_messages + sum(max(0, min(last + 1, border) - first) for first, last in waiting)
    changes.set(
        k.window,
        {
            **fields,
            "g": plan.generation,
            "v": plan.version,
            "lm": live_messages,
            "lt": sum(item.tokens for item in live),
            "lf": end - live_messages,
            "pm": pending_messages,
            "pt": sum(item.tokens for item in pending),
            "pf": end - live_messages - pending_messages,
        },
    )
