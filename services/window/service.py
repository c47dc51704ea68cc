"""The window agent's work: recorded turns in, closed chunks and the replies' usage out.

| the process dies | what follows |
|---|---|
| before the script | the event is delivered again and applied |
| after the script, before its chunks or its usage are published | the redelivery changes nothing, and finds them to publish |
| after that, before the acknowledgement | the same ids are published once more; readers skip them |

Shown by tests/integration/test_window_outbox.py and tests/integration/test_window_model.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from redis.asyncio import Redis

from schemas.delivery import Outgoing, Position, Topics
from schemas.turns import TurnEvent, TurnRecorded
from schemas.usage import Stage, UsageBooked
from services.failures import Poison, Transient
from services.state import ids, outbox
from services.tokens.counter import TokenCounter
from services.window.store import AGENT, ChunkSize, Reply, apply, call
from services.work import DONE, REPEATED, Work

_REFUSED = {
    "partition": "key: the chat's earlier events are on partition {detail}, this one is on {partition}: "
    "two producers hash keys differently (use murmur2)",
    "stale": "offset: {offset} is not after {detail}, which this chat has applied already",
    "turn": "turn.id: a turn with this id was recorded with other messages, model or usage",
    "message": "messages: the id {detail} belongs to a message of an earlier turn",
}


class Delivered(NamedTuple):
    """An event and where it was read. `timestamp` is the record's, in milliseconds."""

    event: TurnEvent
    position: Position
    timestamp: int


class Window:
    """Applies events of chats in the order given."""

    def __init__(self, redis: Redis, counter: TokenCounter, chunk: ChunkSize) -> None:
        self._redis = redis
        self._counter = counter
        self._chunk = chunk

    async def apply(self, batch: Sequence[Delivered]) -> list[Work | Poison]:
        """One result per event. Raises redis.RedisError or Transient where the store is away; all of it may then be
        run again."""
        results: list[Work | Poison] = [DONE] * len(batch)
        places: list[int] = []
        calls = []
        previous: dict[str, int] = {}
        for place, (event, position, timestamp) in enumerate(batch):
            if not isinstance(event, TurnRecorded):
                results[place] = Poison(f"type: {event.type} is not supported yet")
                continue
            at = event.at or datetime.fromtimestamp(timestamp / 1000, UTC)
            places.append(place)
            before = previous.get(event.chat.id)
            calls.append(call(event, position, at, self._counter, self._chunk, before))
            previous[event.chat.id] = position.offset
        if calls:
            found: set[tuple[str, bytes]] = set()
            for place, reply in zip(places, await apply(self._redis, calls), strict=True):
                if reply.status == "order":
                    raise Transient("the chat's event before this one is not applied", outage=True)
                results[place] = self._work(batch[place], reply, found)
        return results

    def _work(self, delivered: Delivered, reply: Reply, found: set[tuple[str, bytes]]) -> Work | Poison:
        """`found`: outbox entries that an earlier event of the batch publishes, of a chat each with its field."""
        event, position, _ = delivered
        assert isinstance(event, TurnRecorded)
        refused = _REFUSED.get(reply.status)
        if refused is not None:
            return Poison(
                refused.format(detail=reply.detail, partition=position.partition, offset=position.offset)
            )
        repeated = reply.status == "repeated"
        # usage is not in the outbox: it follows from the event alone, so that a redelivery finds it as well
        publish = () if reply.detail == "other" else _usage(event, int(reply.detail))
        entries = {
            field: value
            for field, value in zip(reply.outbox[::2], reply.outbox[1::2], strict=True)
            if (event.chat.id, field) not in found
        }
        if not entries:
            return Work(publish, None, repeated) if publish else (REPEATED if repeated else DONE)
        found.update((event.chat.id, field) for field in entries)

        async def trim() -> None:
            await outbox.trim(self._redis, event.chat.id, AGENT, list(entries))

        return Work((*outbox.outgoing(entries.values()), *publish), trim, repeated)


def _usage(event: TurnRecorded, at_ms: int) -> tuple[Outgoing, ...]:
    """The reply's usage, once per turn (C1): the id and the time are the turn's, whatever event brings it."""
    if event.usage is None:
        return ()
    chat, user = event.chat, event.user.id if event.user else None
    booked = UsageBooked(
        id=ids.derive("usage", Stage.reply, chat.id, event.turn.id),
        at=datetime.fromtimestamp(at_ms / 1000, UTC),
        user_id=user,
        chat_id=chat.id,
        character=chat.characters[0] if chat.characters else None,
        model=event.model.name if event.model else "unknown",
        stage=Stage.reply,
        tokens_in=event.usage.prompt_tokens,
        tokens_out=event.usage.completion_tokens,
    )
    key = user or chat.id
    return (Outgoing(Topics.USAGE, key.encode(), booked.model_dump_json(exclude_none=True).encode()),)
