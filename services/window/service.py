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
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from pydantic_core import to_json
from redis.asyncio import Redis

from schemas.delivery import Outgoing, Position, Topics
from schemas.turns import TurnEvent, TurnRecorded
from schemas.usage import Stage
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
        if not calls:
            return results
        found: dict[str, dict[bytes, bytes]] = {}
        for place, reply in zip(places, await apply(self._redis, calls), strict=True):
            if reply.status == "order":
                raise Transient("the chat's event before this one is not applied", outage=True)
            results[place] = self._work(batch[place], reply, found)
        self._trimmed(results, found)
        return results

    def _work(
        self, delivered: Delivered, reply: Reply, found: dict[str, dict[bytes, bytes]]
    ) -> Work | Poison:
        """`found`: outbox entries by chat and field that an event of the batch publishes; this one adds its own."""
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
        if reply.outbox:
            known = found.setdefault(event.chat.id, {})
            entries = dict(zip(reply.outbox[::2], reply.outbox[1::2], strict=True))
            publish = (*outbox.outgoing(v for f, v in entries.items() if f not in known), *publish)
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


def _usage(event: TurnRecorded, at_ms: int) -> tuple[Outgoing, ...]:
    """The reply's usage, once per turn (C1): the id and the time are the turn's, whatever event brings it."""
    if event.usage is None:
        return ()
    chat, user = event.chat, event.user.id if event.user else None
    # written by hand: the model's own way costs ten times as much; tests/unit/test_window_usage.py holds both together
    booked = {
        "type": "usage.booked",
        "id": ids.derive("usage", Stage.reply, chat.id, event.turn.id),
        "at": datetime.fromtimestamp(at_ms / 1000, UTC),
        "chat_id": chat.id,
        "model": event.model.name if event.model else "unknown",
        "stage": Stage.reply,
        "tokens_in": event.usage.prompt_tokens,
        "tokens_out": event.usage.completion_tokens,
    }
    if user is not None:
        booked["user_id"] = user
    if chat.characters:
        booked["character"] = chat.characters[0]
    return (Outgoing(Topics.USAGE, (user or chat.id).encode(), to_json(booked)),)
