"""Whether a chat was deleted: all that Redis keeps of it then is this mark."""

from __future__ import annotations


from redis.asyncio import Redis

from services.failures import Poison
from services.state.keys import ChatKeys
from services.work import DONE, Work

MARK = "dl"
"""The field of the window that names the event which deleted the chat."""


async def tombstone(redis: Redis, chat: str) -> Work:
    """A record without a value under this chat's key. Raises Poison where the chat was not deleted."""
    if await redis.hexists(ChatKeys.of(chat).window, MARK):
        return DONE
    raise Poison("value: missing")
