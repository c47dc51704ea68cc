"""Books what drafting has cost (C1), through an outbox of the user.

| the process dies | what follows |
|---|---|
| before the model answered | nothing is known of what it cost; the user asks again |
| after the use was noted, before the broker confirmed | the next start, or the user's next draft, publishes it with the same id |
| after the broker confirmed, before the note is dropped | it is published twice, and booked once by its id |

Shown by tests/integration/test_gateway_drafts.py.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from redis.asyncio import Redis

from schemas.delivery import Outgoing, Topics
from schemas.usage import Stage, UsageBooked
from services.drafts.port import Drafts
from services.llm.port import Unanswered
from services.state import ids, keys, outbox

Store = Callable[[], AbstractAsyncContextManager[Redis]]
"""Gives Redis for one call or a few."""

PATTERN = "{u:*}:o:drafts"
"""Matches the outboxes of all users."""


@dataclass(frozen=True, slots=True)
class Use:
    """Who lets a model draft, and what for. `request` tells one use from another; `chat` None: no chat is read."""

    request: str
    at: datetime
    user: str
    stage: Stage
    model: str
    chat: str | None = None
    character: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0


def key(user: str) -> str:
    """The outbox of a user's uses; in the slot of the user's other keys."""
    return f"{{u:{user}}}:o:drafts"


async def asked(store: Store, use: Use, ask: Callable[[], Awaitable[Drafts]]) -> Drafts:
    """The answer, once what it cost is noted; a failure's cost is noted as well, and the failure raised."""
    try:
        drafts = await ask()
    except Unanswered as failure:
        await note(store, replace(use, tokens_in=failure.tokens_in, tokens_out=failure.tokens_out))
        raise
    await note(
        store,
        replace(use, model=drafts.model, tokens_in=drafts.tokens_in, tokens_out=drafts.tokens_out),
    )
    return drafts


async def note(store: Store, use: Use) -> None:
    """Put a use into the outbox, if it cost anything."""
    if use.tokens_in + use.tokens_out == 0:
        return
    event = UsageBooked(
        id=ids.derive("usage", use.stage, use.user, use.chat or "", use.request),
        at=use.at,
        user_id=use.user,
        chat_id=use.chat,
        character=use.character,
        model=use.model,
        stage=use.stage,
        tokens_in=use.tokens_in,
        tokens_out=use.tokens_out,
    )
    async with store() as redis:
        await redis.hset(key(use.user), event.id, outbox.entry(Topics.USAGE, use.user, event))


async def publish(
    store: Store, user: str, confirmed: Callable[[Sequence[Outgoing]], Awaitable[None]]
) -> None:
    """Publish what is noted for a user, and drop what `confirmed` has published. Raises what it raises."""
    async with store() as redis:
        noted = cast("Mapping[bytes, bytes]", await redis.hgetall(key(user)))
    if noted:
        await confirmed(outbox.outgoing(noted.values()))
        async with store() as redis:
            await redis.hdel(key(user), *cast("list[str]", list(noted)))


async def waiting(store: Store) -> set[str]:
    """Users of whom something is noted. Looks at every key, a thousand in a call."""
    users: set[str] = set()
    cursor = 0
    while True:
        async with store() as redis:
            cursor, found = await redis.scan(cursor, match=PATTERN, count=1_000)
        users.update(keys.user_of(name.decode()) for name in cast("list[bytes]", found))
        if cursor == 0:
            return users
