"""Trying again: growing pauses with jitter, inside a budget, or for as long as an outage lasts."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from services.failures import Transient

T = TypeVar("T")
log = logging.getLogger(__name__)

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 10.0

_WRONG = ("ERR", "WRONGTYPE", "CROSSSLOT")
"""Codes of answers that say the command or the script is wrong."""


def pause(attempt: int, chance: float) -> float:
    """Seconds before the next attempt (1, 2, ...): doubled each time up to a limit, of which `chance` (0 to 1) keeps
    half to all, so that many workers do not come back at once."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** min(attempt - 1, 16))) * (0.5 + chance / 2)


def redis_failure(error: RedisError) -> Transient | None:
    """An outage of Redis as a failure of ours; None where the command itself was wrong (a bug, not an outage)."""
    if isinstance(error, (ConnectionError, TimeoutError, BusyLoadingError, ReadOnlyError)):
        return Transient(f"Redis does not answer: {type(error).__name__}", outage=True)
    if isinstance(error, ResponseError):
        # the client strips the codes that it knows from the message, and keeps them apart
        code = error.status_code or str(error).split(" ", 1)[0]
        if code not in _WRONG:
            # OOM, MASTERDOWN, NOREPLICAS, CLUSTERDOWN, TRYAGAIN ...: passes by itself or by an operator's hand
            return Transient(f"Redis refuses: {code}", outage=True)
    return None


@dataclass(slots=True)
class Retries:
    """Runs operations until they succeed. Clock, sleep and chance are injected for tests."""

    budget: float
    """Seconds after which a failure that is not an outage is given up."""
    on_retry: Callable[[], None] = lambda: None
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    chance: Callable[[], float] = field(default=random.random)

    async def run(self, operation: Callable[[], Awaitable[T]]) -> T:
        """The operation's result. Raises its last Transient over the budget, and at once whatever is not transient."""
        started = self.now()
        attempt = 0
        while True:
            attempt += 1
            try:
                return await operation()
            except Transient as error:
                failure = error
            except RedisError as error:
                translated = redis_failure(error)
                if translated is None:
                    raise
                failure = translated
            if not failure.outage and self.now() - started >= self.budget:
                raise failure
            self.on_retry()
            seconds = pause(attempt, self.chance())
            log.warning(
                "retry", extra={"attempt": attempt, "pause_s": round(seconds, 2), "reason": str(failure)}
            )
            await self.sleep(seconds)
