"""The window agent's work: recorded turns in, closed chunks and the replies' usage out.

| the process dies | what follows |
|---|---|
| before the script | the event is delivered again and applied |
| after the script, before its chunks or its usage are published | the redelivery changes nothing, and finds them to publish |
| after that, before the acknowledgement | the same ids are published once more; readers skip them |

Shown by tests/integration/test_window_outbox.py and tests/integration/test_window_model.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import groupby

from redis.asyncio import Redis

from schemas.delivery import Outgoing, Topics
from schemas.turns import TurnRecorded
from services.failures import Poison, Transient
from services.state import deleted, outbox
from services.state.agents import WINDOW as AGENT
from services.takeback.service import TakingBack
from services.takeback.source import PartitionOf, nowhere
from services.tokens.counter import TokenCounter
from services.window.incoming import Delivered, happened, in_order, memory_entry, usage
from services.window.store import REFUSED, ChunkSize, Reply, apply, call, digest
from services.work import DONE, REPEATED, Work


class Window:
    """Applies events of chats in the order given. `clock` gives seconds since 1970, `sleep` takes them; `partition_of` tells
    where the events of a chat are that nobody knows yet."""

    def __init__(
        self,
        redis: Redis,
        counter: TokenCounter,
        chunk: ChunkSize,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        partition_of: PartitionOf = nowhere,
    ) -> None:
        self._redis = redis
        self._counter = counter
        self._chunk = chunk
        self._clock = clock
        self._back = TakingBack(redis, counter, chunk, partition_of, clock, sleep)

    async def apply(self, batch: Sequence[Delivered]) -> list[Work | Poison]:
        """One result per event. Raises redis.RedisError or Transient where the store is away; all of it may then be
        run again."""
        results: list[Work | Poison] = []
        begun = self._clock()
        for recorded, events in groupby(
            batch, key=lambda delivered: isinstance(delivered.event, TurnRecorded)
        ):
            if recorded:
                results += await self._record(list(events))
                continue
            for delivered in events:
                try:
                    results.append(await self._back.apply(delivered, begun))
                except Poison as poison:
                    results.append(poison)
        # turns alone are read in one go, and find nothing twice
        return results if all(isinstance(item.event, TurnRecorded) for item in batch) else _once(results)

    async def tombstone(self, chat: str) -> Work:
        """A tombstone of a chat. Raises Poison where the chat was not deleted."""
        return await deleted.tombstone(self._redis, chat)

    async def _record(self, batch: Sequence[Delivered]) -> list[Work | Poison]:
        """Recorded turns, in one round trip."""
        calls, contents = [], []
        previous: dict[str, int] = {}
        for event, position, timestamp in batch:
            assert isinstance(event, TurnRecorded)
            at = happened(event, timestamp)
            before = previous.get(event.chat.id)
            memory = memory_entry(event, position, at) if event.memory.ops else None
            contents.append(content := digest(event))
            calls.append(
                call(event, content, position, at, self._counter, self._chunk, before, memory=memory)
            )
            previous[event.chat.id] = position.offset
        found: dict[str, dict[bytes, bytes]] = {}
        results: list[Work | Poison] = []
        replies = await apply(self._redis, calls)
        for delivered, content, reply in zip(batch, contents, replies, strict=True):
            if reply.status == "order":
                raise Transient("the chat's event before this one is not applied", outage=True)
            results.append(self._work(delivered, content, reply, found))
        self._trimmed(results, found)
        return results

    def _work(
        self, delivered: Delivered, content: str, reply: Reply, found: dict[str, dict[bytes, bytes]]
    ) -> Work | Poison:
        """`found`: outbox entries by chat and field that an event of the batch publishes; this one adds its own."""
        event, position, _ = delivered
        assert isinstance(event, TurnRecorded)
        if reply.status == "deleted":
            return deleted.late(event.chat.id, Topics.TURNS)
        refused = REFUSED.get(reply.status)
        if refused is not None:
            return Poison(
                refused.format(detail=reply.detail, partition=position.partition, offset=position.offset)
            )
        repeated = reply.status == "repeated"
        # usage is not in the outbox: it follows from the event alone, so that a redelivery finds it as well
        publish = () if reply.detail == "other" else usage(event, content, int(reply.detail))
        if reply.outbox:
            known = found.setdefault(event.chat.id, {})
            entries = dict(zip(reply.outbox[::2], reply.outbox[1::2], strict=True))
            new = in_order(field for field in entries if field not in known)
            publish = (*outbox.outgoing(entries[field] for field in new), *publish)
            known |= entries
        return Work(publish, None, repeated) if publish else (REPEATED if repeated else DONE)

    def _trimmed(self, results: list[Work | Poison], found: dict[str, dict[bytes, bytes]]) -> None:
        """One trim for the batch, at its last work: it runs when all that the batch publishes is confirmed."""
        if not found:
            return

        async def trim() -> None:
            await outbox.trim_all(
                self._redis, AGENT, {chat: list(entries) for chat, entries in found.items()}
            )

        place = max(place for place, result in enumerate(results) if isinstance(result, Work))
        results[place] = replace(results[place], confirmed=trim)  # type: ignore[type-var]


def _once(results: list[Work | Poison]) -> list[Work | Poison]:
    """What the outbox held at several events of the batch is published with the first of them: nothing is trimmed before
    the whole batch is confirmed."""
    seen: set[Outgoing] = set()
    for place, result in enumerate(results):
        if isinstance(result, Work) and not seen.isdisjoint(result.publish):
            results[place] = replace(result, publish=tuple(r for r in result.publish if r not in seen))
        seen.update(result.publish)
    return results
