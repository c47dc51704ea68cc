"""What the agents announce: a summary was saved, a use of the model is to be booked. Ids follow from the content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from schemas.chat import ChatRef
from schemas.delivery import Topics
from schemas.summaries import Summary, SummarySaved
from schemas.usage import Stage, UsageBooked
from services.state import ids, outbox


@dataclass(frozen=True, slots=True)
class Use:
    """One use of a model: by whom, for what, and how much."""

    chat: ChatRef
    user_id: str | None
    stage: Stage
    model: str
    tokens_in: int
    tokens_out: int


def saved(summary: Summary, user_id: str | None, at: datetime) -> dict[str, str]:
    """The outbox entry of `SummarySaved`."""
    event = SummarySaved(
        id=ids.derive("saved", summary.chat_id, summary.id, summary.version),
        at=at,
        chat_id=summary.chat_id,
        user_id=user_id,
        generation=summary.generation,
        summary_id=summary.id,
        tier=summary.tier,
        version=summary.version,
        span=summary.span,
        tokens=summary.tokens,
    )
    field = f"{summary.id}@{summary.version}/saved"
    return {field: outbox.entry(Topics.SUMMARIES, summary.chat_id, event)}


def booked(use: Use, at: datetime, subject: Sequence[str | int]) -> dict[str, str]:
    """The outbox entry of `UsageBooked`, named by stage, chat and `subject`; none for what cost nothing."""
    if use.tokens_in + use.tokens_out == 0:
        return {}
    chat = use.chat
    event = UsageBooked(
        id=ids.derive("usage", use.stage, chat.id, *subject),
        at=at,
        user_id=use.user_id,
        chat_id=chat.id,
        character=chat.characters[0] if chat.characters else None,
        model=use.model,
        stage=use.stage,
        tokens_in=use.tokens_in,
        tokens_out=use.tokens_out,
    )
    return {f"{event.id}/usage": outbox.entry(Topics.USAGE, use.user_id or chat.id, event)}
