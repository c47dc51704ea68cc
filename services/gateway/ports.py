"""What the gateway needs from outside."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol
from uuid import uuid4

from fastapi import Request
from redis.asyncio import Redis

from schemas.delivery import Outgoing
from schemas.summaries import Body, Summary
from services.audit.deleted import Verdict
from services.audit.report import Report
from services.context.choices import Choices
from services.drafts.extractive import Extractive
from services.drafts.port import Drafter
from services.gateway.auth import Authenticator
from services.gateway.metrics import GatewayMetrics
from services.tokens.counter import TokenCounter, default_counter
from services.work import Work

REDIS_CALLS = 16
"""Connections to Redis in use at a time, beside that of the live channels."""


class Publish(Protocol):
    """Publishes to Kafka."""

    async def publish(self, records: Sequence[Outgoing]) -> None:
        """Returns once the broker has confirmed all records; raises where it did not, and some may be written."""


class EditSummaries(Protocol):
    """Stores a person's edit of a summary (S6); services.summaries.editing has it."""

    async def edit(
        self, chat: str, summary_id: str, expected_version: int, content: Body | str, *, by: str
    ) -> tuple[Summary, Work]:
        """The summary as edited, stored already, and what is to be announced.

        Raises NotFound, MergedAway and Conflict of services.summaries.errors.
        """


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, kw_only=True)
class Deps:
    """Times are in seconds. `broker_ready` is asked by /readyz; without it only Redis is.

    `audit` checks one chat, one user's memories, or all; `verify_deleted` searches everything for a deleted chat. Without
    them POST /v1/audit and /v1/audit/deleted answer 404. Without a `drafter` memories are drafted without a model.
    `memory_timeout`: so long the result of a command on saved memories is waited for.
    """

    redis: Redis
    publisher: Publish
    summaries: EditSummaries
    authenticator: Authenticator
    broker_ready: Callable[[], Awaitable[bool]] | None = None
    audit: Callable[[str | None, str | None], Awaitable[Report]] | None = None
    verify_deleted: Callable[[str], Awaitable[Verdict]] | None = None
    drafter: Drafter | None = None
    clock: Callable[[], datetime] = _now
    new_id: Callable[[], str] = lambda: str(uuid4())
    counter: Callable[[], TokenCounter] = default_counter
    metrics: GatewayMetrics = field(default_factory=GatewayMetrics)
    choices: Choices = field(default_factory=Choices)
    publish_timeout: float = 10.0
    redis_timeout: float = 5.0
    memory_timeout: float = 5.0
    heartbeat: float = 15.0
    streams: int = 1_000
    _calls: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(REDIS_CALLS))

    @property
    def drafting(self) -> Drafter:
        """What drafts memories."""
        return self.drafter or Extractive(self.counter())

    @asynccontextmanager
    async def store(self) -> AsyncIterator[Redis]:
        """Redis for one call or a few: waits for its turn, and for `redis_timeout` in all (then TimeoutError).

        Without the turns a burst of requests opens a connection each, and costs the most where it hurts the most.
        """
        async with asyncio.timeout(self.redis_timeout), self._calls:
            yield self.redis


def deps_of(request: Request) -> Deps:
    """What the app was made with."""
    deps: Deps = request.app.state.deps
    return deps
