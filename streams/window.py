"""Window: keeps the newest turns of a chat live, hands on what falls out of them, books what the reply cost."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from redis.asyncio import Redis
from redis.exceptions import RedisError

from schemas.delivery import Position, Record, Topics
from schemas.turns import TURN_EVENT
from services.failures import Poison
from services.state import applied, deleted
from services.state.agents import WINDOW
from services.window.incoming import Delivered
from services.window.service import Window
from services.work import Work
from streams.runtime.agent import AgentSpec, Batched
from streams.runtime.decoding import check_key, decode, tombstone_of

log = logging.getLogger(__name__)


def agent(window: Window, redis: Redis, epoch: str, limit: int) -> AgentSpec:
    """`epoch` identifies the log of `chat.turns.v1`; `limit` is the most records in one round trip to Redis."""

    def delivered(record: Record) -> Delivered | Poison:
        try:
            event = decode(TURN_EVENT, record)
            check_key(record, event.chat.id, "chat.id")
        except Poison as poison:
            return poison
        return Delivered(event, Position(epoch, record.partition, record.offset), record.timestamp)

    async def handle(records: Sequence[Record]) -> Sequence[Work | Poison]:
        decoded = [delivered(record) for record in records]
        good = [item for item in decoded if isinstance(item, Delivered)]
        done = iter(await window.apply(good))
        results = [item if isinstance(item, Poison) else next(done) for item in decoded]
        await _empty(redis, records, decoded, results)
        for place, record in enumerate(records):
            if (gone := tombstone_of(record)) is not None:
                try:
                    results[place] = await window.tombstone(gone)
                except Poison as poison:
                    results[place] = poison
        return results

    async def report(times: Mapping[int, int]) -> None:
        try:
            await applied.report(redis, epoch, times)
        except RedisError as error:
            # the next report says the same, and more
            log.warning("how far the turns are applied was not reported: %s", type(error).__name__)

    return AgentSpec(WINDOW, Topics.TURNS, Batched(handle, limit), report)


async def _empty(
    redis: Redis,
    records: Sequence[Record],
    decoded: Sequence[Delivered | Poison],
    results: list[Work | Poison],
) -> None:
    """What cannot be understood under a deleted chat's key has its text all the same, and is not kept (W7)."""
    chats = {
        place: record.key.decode(errors="replace")
        for place, record in enumerate(records)
        if isinstance(decoded[place], Poison) and record.value is not None and record.key
    }
    if chats:
        gone = await deleted.among(redis, list(set(chats.values())))
        for place, chat in chats.items():
            if chat in gone:
                results[place] = deleted.late(chat, Topics.TURNS)
