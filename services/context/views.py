"""The answers of the gateway: JSON of the shape in schemas/context.py, plain values of that in schemas/memory_view.py.

They are built without the models: validating what was validated when it was stored would cost most of a request.
tests/integration/test_context_store.py holds both together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_core import to_json

from schemas import limits
from schemas.chat import LEVELS
from schemas.context import Part, Reason
from schemas.summaries import Tier
from services.context.memories import (
    NO_MEMORIES,
    NO_STATUS,
    Memories,
    Status,
    part_json,
    status_view,
)
from services.context.policy import SEPARATOR, Context, Included, tier_tokens
from services.context.snapshot import Snapshot, StoredMessage
from services.context.times import time_text
from services.window.policy import bounds

_SEPARATOR = to_json(SEPARATOR)[1:-1]


def context_json(snapshot: Snapshot, context: Context, memories: Memories = NO_MEMORIES) -> bytes:
    """JSON of the shape of schemas.context.ContextView; `memories` are those that the context was made with."""
    limit = context.budget or 0
    around = {
        "chat_id": snapshot.chat,
        "generation": snapshot.generation,
        "version": snapshot.version,
        "level": snapshot.level,
        "totals": {
            "tokens": context.tokens,
            "messages": len(context.pending) + len(context.live),
            "summaries": sum(map(len, context.summaries.values())),
            "memories": len(context.memories),
            "left_out_tokens": sum(omission.tokens for omission in context.left_out),
            "budget": context.budget,
            "model_context": context.model_context,
            "reserve": context.reserve,
            "over_budget": context.over_budget,
        },
        "left_out": [
            {
                **omission._asdict(),
                "limit": limits.MEMORIES_UNPINNED if omission.reason is Reason.over_limit else limit,
            }
            for omission in context.left_out
        ],
    }
    pieces = [to_json(around)[:-1], b',"parts":[']
    pieces += part_json(memories, context.memories, context.memory_tokens)
    for part in (Part.long_term, Part.merged, Part.recent):
        pieces += _summary_part(part, context.summaries[part])
    for part, messages in ((Part.pending, context.pending), (Part.live, context.live)):
        pieces += _message_part(part, messages)
    pieces.append(b"]}")
    # the texts of an answer are copied here, once and together
    return b"".join(pieces)


def memory_view(snapshot: Snapshot, now: datetime, memories: Status = NO_STATUS) -> dict[str, Any]:
    """Of the shape of schemas.memory_view.MemoryView."""
    limit = bounds(snapshot.level, snapshot.model_context)
    oldest = min((message.at for message in snapshot.pending), default=None)
    age = None if oldest is None else max(0.0, now.timestamp() - oldest / 1000)
    return {
        "chat_id": snapshot.chat,
        "generation": snapshot.generation,
        "version": snapshot.version,
        "turns": snapshot.turns,
        "model": snapshot.model,
        "model_context": snapshot.model_context,
        "bounds": {
            "level": snapshot.level,
            **limit._asdict(),
            "long_term_tokens": LEVELS[snapshot.level].long_term_tokens,
        },
        "tiers": [_tier(tier, snapshot) for tier in (Tier.long_term, Tier.merged, Tier.recent)],
        "pending": {
            **_messages(snapshot.pending),
            "chunks": snapshot.chunks,
            "oldest_age_seconds": age,
        },
        "live": _messages(snapshot.live),
        "summarised": {
            "messages": snapshot.summarised,
            "of": snapshot.messages,
            "share": snapshot.summarised / snapshot.messages if snapshot.messages else 0.0,
        },
        "memories": status_view(memories),
    }


def _tier(tier: Tier, snapshot: Snapshot) -> dict[str, Any]:
    summaries = snapshot.tier(tier)
    return {
        "tier": tier,
        "summaries": [summary.data for summary in summaries],
        "tokens": sum(summary.tokens for summary in summaries),
        "span": _joined([summary.span for summary in summaries]),
    }


def _summary_part(part: Part, included: Sequence[Included]) -> Iterator[bytes]:
    around = {
        "part": part,
        "tokens": tier_tokens(included),
        "ids": [each.summary.id for each in included],
        "shortened": [each.summary.id for each in included if each.shortened],
        "span": _joined([each.summary.span for each in included]),
    }
    text = _SEPARATOR.join([each.text[1:-1] for each in included])
    yield from (b",", to_json(around)[:-1], b',"text":"', text, b'"}')


def _message_part(part: Part, messages: Sequence[StoredMessage]) -> Iterator[bytes]:
    yield b","
    yield to_json(
        {
            "part": part,
            "tokens": sum([message.tokens for message in messages]),
            "span": _span(messages),
            "ids": [message.id for message in messages],
            "messages": [
                {
                    "seq": seq,
                    "id": id,
                    "role": role,
                    "author": author,
                    "text": text,
                    "tokens": tokens,
                    "turn_id": turn,
                    "at": time_text(at),
                }
                for seq, id, role, author, text, tokens, at, turn in messages
            ],
        }
    )


def _messages(messages: Sequence[StoredMessage]) -> dict[str, Any]:
    return {
        "ids": [message.id for message in messages],
        "count": len(messages),
        "tokens": sum(message.tokens for message in messages),
        "span": _span(messages),
    }


def _span(messages: Sequence[StoredMessage]) -> dict[str, Any] | None:
    if not messages:
        return None
    first, last = messages[0], messages[-1]
    return {
        "first_seq": first.seq,
        "last_seq": last.seq,
        "first_message": first.id,
        "last_message": last.id,
        "messages": len(messages),
    }


def _joined(spans: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """One span from the first to the last, `messages` counting only what is covered."""
    if not spans:
        return None
    last = max(spans, key=lambda span: int(span["last_seq"]))
    return {
        "first_seq": spans[0]["first_seq"],
        "last_seq": last["last_seq"],
        "first_message": spans[0]["first_message"],
        "last_message": last["last_message"],
        "messages": sum(span["messages"] for span in spans),
    }
