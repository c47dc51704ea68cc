"""The agent `summarise`: a closed chunk in, its summary saved, then announced."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pydantic import TypeAdapter

from schemas.chunks import ChunkClosed
from schemas.delivery import Record, Topics
from services.summaries.service import Summaries
from services.work import Work
from streams.runtime.decoding import check_key, decode, tombstone_of

NAME = "summarise"
TOPIC = Topics.CHUNKS

_EVENT = TypeAdapter(ChunkClosed)


def build(summaries: Summaries) -> Callable[[Record], Awaitable[Work]]:
    """The handler of one record. It raises Poison, Transient, or redis.RedisError where the store is away."""

    async def handle(record: Record) -> Work:
        if (gone := tombstone_of(record)) is not None:
            return await summaries.tombstone(gone)
        chunk = decode(_EVENT, record)
        check_key(record, chunk.chat.id, "chat.id")
        return await summaries.summarise(chunk)

    return handle
