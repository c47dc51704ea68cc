"""The outbox: what a script decided to publish is stored with the state it changed, and trimmed once confirmed.

| the process dies | what follows |
|---|---|
| before the script | nothing happened; the record is delivered again |
| after the script, before the broker confirmed | the redelivery finds the entries and publishes the same ids |
| after the confirmation, before the trim | the same ids are published once more; readers skip them |

Shown by tests/integration/test_window_outbox.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from schemas.base import Model
from schemas.delivery import Outgoing
from services.state import keys

if TYPE_CHECKING:
    # what is announced is planned without a client
    from redis.asyncio import Redis


def entry(topic: str, key: str, event: Model) -> str:
    """One field's value: topic, key and event as JSON."""
    return json.dumps([topic, key, event.model_dump_json(exclude_none=True)])


def tombstone(topic: str, key: str) -> str:
    """One field's value that says: what the topic has under this key is to go."""
    return json.dumps([topic, key, None])


def outgoing(values: Iterable[bytes | str]) -> tuple[Outgoing, ...]:
    """What to publish, from the values of an outbox."""
    records = []
    for value in values:
        topic, key, body = json.loads(value)
        records.append(Outgoing(topic, key.encode(), None if body is None else body.encode()))
    return tuple(records)


async def read(redis: Redis, chat: str, agent: str) -> Mapping[bytes, bytes]:
    """All entries that one agent has not confirmed yet, by field."""
    return cast("Mapping[bytes, bytes]", await redis.hgetall(keys.outbox(chat, agent)))


async def trim(redis: Redis, chat: str, agent: str, fields: Sequence[str | bytes]) -> None:
    """Drop entries that the broker has confirmed."""
    if fields:
        await redis.hdel(keys.outbox(chat, agent), *fields)


async def trim_all(redis: Redis, agent: str, fields: Mapping[str, Sequence[str | bytes]]) -> None:
    """The same for several chats, in one round trip."""
    pipe = redis.pipeline(transaction=False)
    for chat, names in fields.items():
        pipe.hdel(keys.outbox(chat, agent), *names)
    await pipe.execute()
