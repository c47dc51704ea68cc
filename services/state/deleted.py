"""Whether a chat was deleted: all that Redis keeps of it then is this mark.

What comes behind the tombstone of a deleted chat (a late event, or one that was on its way) is answered with another one:
the newest record under the chat's key is always a tombstone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from schemas.delivery import Outgoing
from services.failures import Poison
from services.state.keys import ChatKeys
from services.work import DONE, REPEATED, Work

if TYPE_CHECKING:
    # the mark itself is known without a client
    from redis.asyncio import Redis

MARK = "dl"
"""The field of the window that names the event which deleted the chat."""

REASON = "chat.id: this chat was deleted"


async def tombstone(redis: Redis, chat: str) -> Work:
    """A record without a value under this chat's key. Raises Poison where the chat was not deleted."""
    if await redis.hexists(ChatKeys.of(chat).window, MARK):
        return DONE
    raise Poison("value: missing")


async def among(redis: Redis, chats: Sequence[str]) -> set[str]:
    """Those of these chats that were deleted, in one round trip."""
    pipe = redis.pipeline(transaction=False)
    for chat in chats:
        pipe.hexists(ChatKeys.of(chat).window, MARK)
    return {chat for chat, marked in zip(chats, await pipe.execute(), strict=True) if marked}


def late(chat: str, topic: str) -> Poison:
    """Why an event of a deleted chat is not carried out."""
    return Poison(REASON, keep=False, publish=(Outgoing(topic, chat.encode(), None),))


async def repeated(redis: Redis, chat: str, topic: str) -> Work:
    """Of a record of `topic` that concerns nothing any more: whether because its chat was deleted."""
    if await redis.hexists(ChatKeys.of(chat).window, MARK):
        return Work((Outgoing(topic, chat.encode(), None),), None, repeated=True)
    return REPEATED
