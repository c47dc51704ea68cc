"""The agent `merge`: a summary was saved or edited; take the next step that the chat's summaries allow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import TypeAdapter

from schemas.delivery import Record, Topics
from schemas.summaries import SummarySaved
from services.summaries.service import Summaries
from services.work import Work
from streams.runtime.decoding import check_key, decode, tombstone_of

NAME = "merge"
TOPIC = Topics.SUMMARIES

_EVENT = TypeAdapter(SummarySaved)


def build(summaries: Summaries) -> Callable[[Record], Awaitable[Work]]:
    """The handler of one record. It raises Poison, Transient, or redis.RedisError where the store is away."""

    async def handle(record: Record) -> Work:
        if (gone := tombstone_of(record)) is not None:
            return await summaries.tombstone(gone)
        event = decode(_EVENT, record)
        check_key(record, event.chat_id, "chat_id")
        return await summaries.merge(event)

    return handle
