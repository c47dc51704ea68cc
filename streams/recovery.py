"""A new log under a kept Redis: what was announced in the old one and not handled is announced again (promise 9).

Which log it is, is remembered in Redis by its epoch. The embedded broker's log is in memory, so that each of its
starts is a new log; on a broker that keeps its log this happens only where a topic was made anew. Announcing twice
changes nothing: a chunk that has its summary is answered as a repeat, a command on memories by its id.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from pydantic_core import from_json

from schemas.delivery import Outgoing, Topics
from schemas.memories import MemoryRollback
from schemas.summaries import Summary
from services.memories import store as memories
from services.state import agents, keys, outbox
from services.summaries import announce
from services.summaries.policy import GROUP
from services.window.incoming import in_order
from streams.resources import Resources

log = logging.getLogger(__name__)

NOTE = f"afterturn:log:{Topics.CHUNKS}"
CHANGES_NOTE = f"afterturn:log:{Topics.MEMORY_CHANGES}"


@dataclass(frozen=True, slots=True)
class Waiting:
    """What one chat had announced, and the outbox fields of it by agent."""

    chat: str
    records: list[Outgoing]
    fields: Mapping[str, list[bytes]]


async def announce_again(resources: Resources) -> int:
    """Publish pending chunks, outboxes, what merging waits for and what memories are to take back, where the log is not
    that of the last start.

    Returns the number of records. Where the process dies half-way the log is not noted, and the next start repeats it.
    """
    redis, epoch = resources.redis, resources.epochs[Topics.CHUNKS]
    if await redis.get(NOTE) == epoch.encode():
        return 0
    count = 0
    async for key in redis.scan_iter(match=keys.WINDOW_PATTERN, count=500):
        waiting = await _of(resources, keys.chat_of(cast(bytes, key).decode()))
        await resources.publisher.publish(waiting.records)
        for agent, fields in waiting.fields.items():
            await outbox.trim(redis, waiting.chat, agent, fields)
        count += len(waiting.records)
    await redis.set(NOTE, epoch)
    if count:
        log.info("announced again in a new log", extra={"records": count})
    return count


async def announce_changes_again(resources: Resources) -> int:
    """Publish the results of commands on memories that were not confirmed, where the log is not that of the last start.

    Returns the number of records. Where the process dies half-way the log is not noted, and the next start repeats it.
    """
    redis, epoch = resources.redis, resources.epochs[Topics.MEMORY_CHANGES]
    if await redis.get(CHANGES_NOTE) == epoch.encode():
        return 0
    count = 0
    async for key in redis.scan_iter(match=keys.USER_PATTERN, count=500):
        user = keys.user_of(cast(bytes, key).decode())
        box = cast("Mapping[bytes, bytes]", await redis.hgetall(keys.UserKeys.of(user).outbox))
        if box:
            await resources.publisher.publish(outbox.outgoing(box.values()))
            await memories.trim(redis, {user: list(box)})
            count += len(box)
    await redis.set(CHANGES_NOTE, epoch)
    if count:
        log.info("announced again in a new log", extra={"records": count})
    return count


async def _of(resources: Resources, chat: str) -> Waiting:
    k = keys.ChatKeys.of(chat)
    pipe = resources.redis.pipeline(transaction=False)
    pipe.hvals(k.chunks)
    pipe.hvals(k.summaries)
    pipe.hget(k.window, "u")
    pipe.hvals(k.memory_rollbacks)
    for agent in agents.OF_CHATS:
        pipe.hgetall(keys.outbox(chat, agent))
    chunks, summaries, user, rollbacks, *boxes = await pipe.execute()
    # in the order in which the window closed them
    records = [Outgoing(Topics.CHUNKS, chat.encode(), event) for event in sorted(chunks, key=_index)]
    if len(summaries) >= GROUP:
        # a step of merging may be due, and each step announces the next
        newest = max(map(Summary.model_validate_json, summaries), key=lambda summary: summary.span.first_seq)
        entries = announce.saved(newest, user.decode() if user else None, newest.created_at)
        records += outbox.outgoing(entries.values())
    held = [outbox.outgoing(box[field] for field in in_order(box)) for box in boxes]
    # a rollback that the outbox still has takes effect behind the writes that it takes back; one that it has not was
    # published before everything that it has
    unpublished = {record.value for box in held for record in box}
    for value in sorted(rollbacks, key=_generation):
        if value not in unpublished:
            user = MemoryRollback.model_validate_json(value).user_id
            records.append(Outgoing(Topics.MEMORY_COMMANDS, user.encode(), value))
    for box in held:
        records += box
    return Waiting(chat, records, {a: list(box) for a, box in zip(agents.OF_CHATS, boxes, strict=True)})


def _index(event: bytes) -> int:
    return int(from_json(event)["index"])


def _generation(rollback: bytes) -> int:
    return int(from_json(rollback)["generation"])
