"""A whole chat as it lies in Redis, and what must hold of it whatever was taken back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from schemas.chat import Level
from schemas.chunks import ChunkClosed
from schemas.delivery import Position, Topics
from schemas.summaries import Body, Summary, SummarySaved, Tier, TimelineLine
from schemas.turns import TURN_EVENT
from services.state import ids, keys
from services.summaries.port import Draft, SourceMessage
from services.summaries.service import Summaries
from services.takeback.values import Item, Row, TurnEntry, row, unpack
from services.window.incoming import Delivered
from services.window.policy import Bounds
from services.work import Work
from tests.integration.summaries_state import Clock

EPOCH = "log-1"


class Quoting:
    """A summariser that keeps every text word for word, so that a test sees what a summary is made of."""

    model = "quoting"

    def __init__(self) -> None:
        self.calls = 0

    async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
        self.calls += 1
        lines = tuple(
            TimelineLine(text=message.text, first_seq=message.seq, last_seq=message.seq)
            for message in messages
        )
        return Draft(Body(timeline=lines), self.model, "1", 10, 1)

    async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
        self.calls += 1
        return Draft(
            Body(timeline=tuple(x for s in sources for x in s.body.timeline)), self.model, "1", 10, 1
        )

    async def compress(self, source: Summary, *, level: Level, budget: int) -> Draft:
        self.calls += 1
        return Draft(source.body, self.model, "1", 10, 1)

    async def close(self) -> None:
        pass


def summaries(redis: Redis, summariser: Quoting) -> Summaries:
    """The service; a summary costs nothing, so that no memory is ever compressed."""
    return Summaries(redis, summariser, lambda text: 0, Clock())


def delivered(body: dict[str, Any], offset: int, *, chat: str = "c1") -> Delivered:
    """An event of `chat` as read at `offset`."""
    value = {"chat": {"id": chat, "characters": ["mira"]}, "user": {"id": "u1"}, **body}
    return Delivered(
        TURN_EVENT.validate_python(value), Position(EPOCH, 0, offset), 1_790_000_000_000 + offset
    )


def recorded(turn: str, messages: Sequence[tuple[str, str]], event: str, **fields: Any) -> dict[str, Any]:
    """A turn of these messages (id, text)."""
    said = [
        {"id": id, "role": "assistant" if at % 2 else "user", "text": text}
        for at, (id, text) in enumerate(messages)
    ]
    return {"type": "turn.recorded", "id": event, "turn": {"id": turn}, "messages": said, **fields}


@dataclass(frozen=True)
class Whole:
    """Everything of a chat. `texts` has each message's text by number, wherever it lies."""

    fields: dict[str, str]
    live: list[Item]
    pending: list[Item]
    chunks: list[ChunkClosed]
    summaries: list[Summary]
    archived: dict[str, Summary]
    turns: list[TurnEntry]
    numbers: dict[str, int]
    rows: dict[int, Row]
    archives: dict[str, dict[int, Row]]
    order: list[str]

    def number(self, name: str) -> int:
        return int(self.fields.get(name) or 0)

    @property
    def texts(self) -> dict[int, Row]:
        found = {seq: row for rows in self.archives.values() for seq, row in rows.items()}
        for seq, kept in self.rows.items():
            assert found.get(seq, kept) == kept
        return found | self.rows

    @property
    def leaves(self) -> dict[str, Summary]:
        """The summaries of chunks, in use or merged away."""
        return {s.id: s for s in (*self.summaries, *self.archived.values()) if s.tier is Tier.recent}


async def whole(redis: Redis, chat: str) -> Whole:
    """Read it."""
    k = keys.ChatKeys.of(chat)
    window, numbers, messages, turns = [
        {name.decode(): value for name, value in (await redis.hgetall(key)).items()}
        for key in (k.window, k.message_ids, k.messages, k.turns)
    ]
    order = [id.decode() for id in await redis.lrange(k.turn_order, 0, -1)]
    assert set(order) == set(turns)
    assert len(order) == len(turns)
    archive = await redis.hgetall(k.archive)
    archived = await redis.hgetall(k.archived_summaries)
    return Whole(
        {name: value.decode() for name, value in window.items()},
        [Item.parse(item) for item in await redis.lrange(k.live, 0, -1)],
        [Item.parse(item) for item in await redis.lrange(k.pending, 0, -1)],
        sorted(map(ChunkClosed.model_validate_json, await redis.hvals(k.chunks)), key=lambda c: c.index),
        sorted(
            map(Summary.model_validate_json, await redis.hvals(k.summaries)), key=lambda s: s.span.first_seq
        ),
        {name.decode(): Summary.model_validate_json(raw) for name, raw in archived.items()},
        [TurnEntry.parse(id, turns[id]) for id in order],
        {id: int(seq) for id, seq in numbers.items()},
        {int(seq): row(raw) for seq, raw in messages.items()},
        {id.decode(): unpack(raw) for id, raw in archive.items()},
        [id.decode() for id in await redis.lrange(k.archive_order, 0, -1)],
    )


def check(state: Whole, expected: list[tuple[str, str, list[tuple[str, str | None]]]]) -> None:
    """`expected`: turns (id, _, messages (id, text; None: deleted)), oldest first. Every message is where it should be, and
    no summary says what no message says."""
    said = [(id, text, turn) for turn, _, messages in expected for id, text in messages]
    texts = state.texts
    assert sorted(texts) == list(range(len(said))) == list(range(state.number("n")))
    for seq, (id, text, turn) in enumerate(said):
        kept = texts[seq]
        assert (kept.id, kept.turn) == (id, turn)
        assert (kept.text, kept.deleted) == (text or "", text is None)
        assert state.numbers[id] == seq
    assert len(state.numbers) == len(said)
    assert [(turn.id, turn.messages) for turn in state.turns] == [
        (id, tuple(name for name, _ in messages)) for id, _, messages in expected
    ]
    _coverage(state, len(said))
    _counters(state, texts)
    _tree(state, texts)


def full(state: Whole, limit: Bounds) -> None:
    """The window holds the newest messages up to its bounds: with the turn before its first one it would be over them (W1)."""
    [first] = [place for place, turn in enumerate(state.turns) if turn.first == state.live[0].first]
    if first:
        before = state.turns[first - 1]
        tokens = sum(state.texts[seq].tokens for seq in range(before.first, before.end))
        over = state.number("lt") + tokens > limit.tokens
        assert over or state.number("lm") + before.size > limit.messages


def _coverage(state: Whole, end: int) -> None:
    spans = sorted(
        [(c.span.first_seq, c.span.last_seq) for c in state.chunks]
        + [(s.span.first_seq, s.span.last_seq) for s in state.leaves.values()]
    )
    at = 0
    for first, last in spans:
        assert first == at
        at = last + 1
    covered = at
    for item in state.pending:
        assert item.first == at
        at += item.size
    begin = state.live[0].first if state.live else end
    assert begin <= at
    if begin < at:
        # filled in from chunks: only up to the mark, and no pending turn in between
        assert state.number("co") >= covered
        assert not state.pending
    at = begin
    for item in state.live:
        assert item.first == at
        at += item.size
    assert at == end
    assert state.live or not end
    needed = {
        seq for item in (*state.live, *state.pending) for seq in range(item.first, item.first + item.size)
    }
    needed |= {seq for c in state.chunks for seq in range(c.span.first_seq, c.span.last_seq + 1)}
    assert set(state.rows) == needed


def _counters(state: Whole, texts: dict[int, Row]) -> None:
    for items, messages, tokens in ((state.live, "lm", "lt"), (state.pending, "pm", "pt")):
        assert state.number(messages) == sum(item.size for item in items)
        assert state.number(tokens) == sum(item.tokens for item in items)
        for item in items:
            inside = range(item.first, item.first + item.size)
            assert item.tokens == sum(texts[seq].tokens for seq in inside)
            assert (item.first_id, item.last_id) == (texts[inside[0]].id, texts[inside[-1]].id)
    assert state.number("lf") == state.number("n") - state.number("lm")
    assert state.number("tn") == len(state.turns)
    assert state.number("sm") == sum(s.span.messages for s in state.leaves.values())
    assert state.number("ci") == len(state.chunks) + len(state.leaves)
    places = {c.index: c.span.first_seq for c in state.chunks}
    places |= {at: state.leaves[id].span.first_seq for at, id in enumerate(state.order) if id}
    assert sorted(places) == list(range(len(places)))
    assert [places[at] for at in sorted(places)] == sorted(places.values())
    for chunk in state.chunks:
        span = chunk.span
        assert chunk.id == ids.chunk_id(chunk.chat.id, chunk.generation, span.first_seq, span.last_seq)
        assert chunk.tokens == sum(texts[seq].tokens for seq in range(span.first_seq, span.last_seq + 1))


def _tree(state: Whole, texts: dict[int, Row]) -> None:
    assert set(state.archives) == set(state.leaves)
    for summary in (*state.summaries, *state.archived.values()):
        for line in summary.body.timeline:
            edited = summary.edited_at is not None or line.text.startswith("edited")
            assert edited or (line.text == texts[line.first_seq].text and not texts[line.first_seq].deleted)
        if summary.tier is not Tier.recent:
            sources = [state.archived[name] for name in summary.provenance.source_ids]
            assert sources[0].span.first_seq == summary.span.first_seq
            assert sources[-1].span.last_seq == summary.span.last_seq
    named = [name for s in (*state.summaries, *state.archived.values()) for name in s.provenance.source_ids]
    assert sorted(named) == sorted(state.archived)


def announced(work: Work) -> tuple[list[ChunkClosed], list[SummarySaved]]:
    """Chunks and summaries among what is to be published."""
    chunks = [
        ChunkClosed.model_validate_json(r.value) for r in work.publish if r.topic == Topics.CHUNKS and r.value
    ]
    saved = [
        SummarySaved.model_validate_json(r.value)
        for r in work.publish
        if r.topic == Topics.SUMMARIES and r.value
    ]
    return chunks, saved
