"""Books what drafting has cost: each use right after its draft, and what was left over in the background.

Left over is what an earlier process did not come to, and what Redis or the broker did not take when it was due.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from redis.exceptions import RedisError

from schemas.delivery import Outgoing
from services.drafts import booking
from services.drafts.booking import Use
from services.drafts.port import Drafts
from services.gateway.ports import Deps
from services.gateway.problems import Problem
from services.gateway.publishing import publish
from services.gateway.tasks import ended

_AWAY = (Problem, RedisError, TimeoutError)
_PAUSES = (1.0, 5.0, 15.0, 60.0)
_LOG = logging.getLogger(__name__)


class DraftUses:
    """Started once, closed once."""

    def __init__(self, deps: Deps) -> None:
        self._deps = deps
        self._late: set[str] = set()
        self._looked = False
        self._due = asyncio.Event()
        self._due.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks in the background for what is left over, and tries until it is booked."""
        self._task = asyncio.create_task(self._run(), name="gateway-draft-uses")

    async def close(self) -> None:
        """What is left over then stays in Redis, for the next start."""
        task, self._task = self._task, None
        await ended(task)

    async def asked(self, use: Use, ask: Callable[[], Awaitable[Drafts]]) -> Drafts:
        """What `ask` answers, booked or about to be. Raises what `ask` raises, its cost booked as well, and redis errors
        and TimeoutError where the cost cannot be noted."""
        try:
            return await booking.asked(self._deps.store, use, ask)
        finally:
            try:
                await self._publish(use.user)
            except _AWAY as error:
                # drafts that are paid for are not kept back
                self._later(use.user, error)

    async def _publish(self, user: str) -> None:
        async def confirmed(records: Sequence[Outgoing]) -> None:
            await publish(self._deps, records)

        await booking.publish(self._deps.store, user, confirmed)

    def _later(self, user: str, error: BaseException) -> None:
        _LOG.warning("use not booked yet", extra={"error": type(error).__name__})
        self._late.add(user)
        self._due.set()

    async def _run(self) -> None:
        failures = 0
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                await self._settle()
                failures = 0
            except _AWAY:
                self._due.set()
                await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1

    async def _settle(self) -> None:
        if not self._looked:
            self._late |= await booking.waiting(self._deps.store)
            self._looked = True
        while self._late:
            user = self._late.pop()
            try:
                await self._publish(user)
            except _AWAY as error:
                self._later(user, error)
                raise
