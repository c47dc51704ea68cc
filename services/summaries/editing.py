"""A person's edit of a summary (S6). Its announcement lets the merge agent look at the chat again."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from redis.asyncio import Redis

from schemas.summaries import Body, Summary
from services.state import outbox
from services.state.agents import MERGE
from services.summaries import announce, store
from services.summaries.errors import Conflict
from services.summaries.render import parse, render
from services.tokens.counter import TokenCounter
from services.work import Work


class Editing:
    """Compare-and-set on a summary's version: an edit and a merge that cross each other never lose the edit.

    | the process dies | what follows |
    |---|---|
    | before the script | nothing has changed |
    | after the script, before the announcement | the edit holds; it is announced with the chat's next merge event |
    """

    def __init__(self, redis: Redis, counter: TokenCounter, clock: Callable[[], datetime]) -> None:
        self._redis = redis
        self._counter = counter
        self._clock = clock

    async def edit(
        self, chat: str, summary_id: str, expected_version: int, content: Body | str, *, by: str
    ) -> tuple[Summary, Work]:
        """The summary with its new content, and what is to be published. `by` names the person.

        Raises NotFound, MergedAway or Conflict (services.summaries.errors), and redis.RedisError.
        """
        before = await store.read_one(self._redis, chat, summary_id)
        if before.version != expected_version:
            raise Conflict(before.version)
        body = content if isinstance(content, Body) else parse(content, before.body, before.span)
        text = render(body)
        now = self._clock()
        after = before.model_copy(
            update={
                "body": body,
                "text": text,
                "tokens": self._counter(text),
                "version": expected_version + 1,
                "edited_at": now,
                "edited_by": by,
            }
        )
        state = await store.read_state(self._redis, chat)
        entries = announce.saved(after, state.user_id if state else None, now)
        await store.save_edit(self._redis, after, expected_version, entries)
        fields = tuple(entries)

        async def trim() -> None:
            await outbox.trim(self._redis, chat, MERGE, fields)

        return after, Work(outbox.outgoing(entries.values()), trim)
