"""A healthy chat, built by hand: all tiers, a merge, a compression, a parked chunk, pending and live turns."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime

from redis.asyncio import Redis

from schemas.chat import ChatRef, Level
from schemas.chunks import ChunkClosed, Span
from schemas.summaries import Body, Provenance, Rule, Summary, Tier, TimelineLine
from services.audit.snapshot import ArchivedMessage, Held, Snapshot, Turn, TurnEntry, print_of
from services.state import keys
from services.state.ids import chunk_id, merged_id

CHAT = "c1"
AT = datetime(2026, 11, 30, 10, tzinfo=UTC)
TOKENS = 7
"""Tokens of every message."""

CHUNK_TURNS = 5
TURN = 2
CHUNKS = 24
LONG_TERM, MERGED = 16, 20
"""Chunks 0..15 are in the long-term memory, 16..19 in a merged summary, 20 and 22 are recent summaries."""

WAITING = (21, 23)
PENDING_TURNS, LIVE_TURNS = 3, 4
TURNS = CHUNKS * CHUNK_TURNS + PENDING_TURNS + LIVE_TURNS
MESSAGES = TURNS * TURN
RULE = "Never call me Captain."

Archive = Mapping[str, tuple[ArchivedMessage, ...]]


def text(seq: int) -> str:
    """Text of a message; number 3 states a rule."""
    return f"OOC: {RULE} Thanks." if seq == 3 else f"text {seq}"


def span(first_chunk: int, last_chunk: int) -> Span:
    """Of a range of chunks."""
    size = CHUNK_TURNS * TURN
    first, last = first_chunk * size, (last_chunk + 1) * size - 1
    return Span(
        first_seq=first,
        last_seq=last,
        first_message=f"m{first}",
        last_message=f"m{last}",
        messages=last - first + 1,
    )


def name(index: int) -> str:
    """Id of a chunk and of its recent summary."""
    covered = span(index, index)
    return chunk_id(CHAT, 0, covered.first_seq, covered.last_seq)


def summary(
    tier: Tier,
    first: int,
    last: int,
    *,
    sources: tuple[str, ...] = (),
    version: int = 1,
    model: str = "extractive",
) -> Summary:
    """A summary of chunks first..last."""
    covered = span(first, last)
    rules = (Rule(quote=RULE, message_id="m3", author="u1"),) if first == 0 else ()
    return Summary(
        id=name(first)
        if tier is Tier.recent
        else merged_id(tier, CHAT, 0, covered.first_seq, covered.last_seq),
        chat_id=CHAT,
        tier=tier,
        generation=0,
        span=covered,
        body=Body(
            timeline=(
                TimelineLine(text="it went on", first_seq=covered.first_seq, last_seq=covered.last_seq),
            ),
            rules=rules,
        ),
        text="it went on",
        tokens=4,
        version=version,
        provenance=Provenance(
            model=model,
            prompt_version="1",
            level=Level.balanced,
            chunk_ids=() if tier is Tier.long_term else tuple(map(name, range(first, last + 1))),
            source_ids=sources,
        ),
        created_at=AT,
    )


def chunk(index: int) -> ChunkClosed:
    """A chunk without a summary."""
    covered = span(index, index)
    return ChunkClosed(
        id=name(index),
        at=AT,
        chat=ChatRef(id=CHAT),
        generation=0,
        index=index,
        span=covered,
        tokens=covered.messages * TOKENS,
        level=Level.balanced,
    )


def turn(index: int) -> Turn:
    """A turn of a list."""
    first = index * TURN
    return Turn(first, TURN, TURN * TOKENS, f"m{first}", f"m{first + TURN - 1}")


def entry(index: int) -> TurnEntry:
    """A turn of the turn table."""
    first = index * TURN
    return TurnEntry(first, TURN, tuple(f"m{seq}" for seq in range(first, first + TURN)))


def healthy(model: str = "extractive") -> tuple[Snapshot, Archive]:
    """The chat and its archived messages."""
    recent = {i: summary(Tier.recent, i, i, model=model) for i in range(CHUNKS) if i not in WAITING}
    merged = {
        first: summary(
            Tier.merged, first, first + 3, sources=tuple(map(name, range(first, first + 4))), model=model
        )
        for first in range(0, MERGED, 4)
    }
    sources = tuple(merged[first].id for first in range(0, LONG_TERM, 4))
    long_term = summary(Tier.long_term, 0, LONG_TERM - 1, sources=sources, model=model)
    compressed = summary(
        Tier.long_term, 0, LONG_TERM - 1, sources=(f"{long_term.id}@1",), version=2, model=model
    )
    chunked = CHUNKS * CHUNK_TURNS
    live = tuple(map(turn, range(chunked + PENDING_TURNS, TURNS)))
    pending = tuple(map(turn, range(chunked, chunked + PENDING_TURNS)))
    chunks = tuple(map(chunk, WAITING))
    spans = [(t.first, t.last) for t in (*live, *pending)]
    spans += [(c.span.first_seq, c.span.last_seq) for c in chunks]
    live_messages, pending_messages = LIVE_TURNS * TURN, PENDING_TURNS * TURN
    fields = {
        "ep": "e",
        "pa": "0",
        "of": "126",
        "g": "0",
        "n": MESSAGES,
        "v": 200,
        "lf": MESSAGES - live_messages,
        "lm": live_messages,
        "lt": live_messages * TOKENS,
        "pf": MESSAGES - live_messages - pending_messages,
        "pm": pending_messages,
        "pt": pending_messages * TOKENS,
        "ci": CHUNKS,
        "tn": TURNS,
        "sm": len(recent) * CHUNK_TURNS * TURN,
    }
    snapshot = Snapshot(
        chat=CHAT,
        fields={field: str(value) for field, value in fields.items()},
        messages={
            seq: Held(f"m{seq}", TOKENS, f"t{seq // TURN}", print_of(text(seq)))
            for first, last in spans
            for seq in range(first, last + 1)
        },
        live=live,
        pending=pending,
        turns={f"t{index}": entry(index) for index in range(TURNS)},
        turn_order=tuple(f"t{index}" for index in range(TURNS)),
        numbers={f"m{seq}": seq for seq in range(MESSAGES)},
        chunks=chunks,
        summaries=(compressed, merged[LONG_TERM], recent[20], recent[22]),
        merged_away={
            **{recent[index].id: recent[index] for index in range(MERGED)},
            **{merged[first].id: merged[first] for first in range(0, LONG_TERM, 4)},
            f"{long_term.id}@1": long_term,
        },
        archive=frozenset(item.id for item in recent.values()),
        order=tuple("" if index in WAITING else name(index) for index in range(CHUNKS - 1)),
        outboxes={"window": 0, "summarise": 0, "merge": 0},
    )
    archive = {
        item.id: tuple(
            ArchivedMessage(seq, f"m{seq}", text(seq), f"t{seq // TURN}")
            for seq in range(item.span.first_seq, item.span.last_seq + 1)
        )
        for item in recent.values()
    }
    return snapshot, archive


async def store(redis: Redis, snapshot: Snapshot, archive: Archive) -> None:
    """Write the chat as the agents would have left it."""
    k = keys.ChatKeys.of(snapshot.chat)

    def row(seq: int, turn: str) -> list[str | int]:
        return [f"m{seq}", "user", "u1", text(seq), TOKENS, 0, turn]

    async with redis.pipeline(transaction=True) as pipe:
        pipe.hset(k.window, mapping=dict(snapshot.fields))
        pipe.hset(
            k.messages,
            mapping={str(s): json.dumps(row(s, held.turn)) for s, held in snapshot.messages.items()},
        )
        for key, turns in ((k.live, snapshot.live), (k.pending, snapshot.pending)):
            for t in turns:
                pipe.rpush(key, f"{t.first} {t.size} {t.tokens} 0 {t.first_id} {t.last_id}")
        pipe.hset(
            k.turns,
            mapping={
                id: f"digest {entry.first} {entry.size} 1750000000000 {' '.join(entry.messages)}"
                for id, entry in snapshot.turns.items()
            },
        )
        pipe.rpush(k.turn_order, *snapshot.turn_order)
        pipe.hset(k.message_ids, mapping=dict(snapshot.numbers))
        pipe.hset(k.chunks, mapping={item.id: item.model_dump_json() for item in snapshot.chunks})
        pipe.hset(k.summaries, mapping={item.id: item.model_dump_json() for item in snapshot.summaries})
        pipe.hset(
            k.archived_summaries,
            mapping={name: item.model_dump_json() for name, item in snapshot.merged_away.items()},
        )
        for id, messages in archive.items():
            rows = [[m.seq, m.id, "user", "u1", m.text, TOKENS, 0, f"t{m.seq // TURN}"] for m in messages]
            pipe.hset(k.archive, id, zlib.compress(json.dumps(rows).encode()))
        pipe.rpush(k.archive_order, *snapshot.order)
        await pipe.execute()
