"""`Idempotency-Key`: the same request again gets the first one's answer and publishes nothing.

| the process dies | what follows |
|---|---|
| before the work is done | the mark of a request under way runs out; the repeat publishes the same event ids |
| after it, before the answer is stored | the same: the events are written twice, and applied once by their ids |

Shown by tests/integration/test_gateway_turns.py.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Awaitable, Callable
from typing import cast

from fastapi import Response
from redis.asyncio import Redis
from redis.exceptions import RedisError

from services.gateway.auth import Principal
from services.gateway.ports import Deps
from services.gateway.problems import Problem

KEPT_SECONDS = 24 * 3600
"""For how long an answer is repeated."""

UNDER_WAY_SECONDS = 60
"""A request under way blocks its key at most so long; more than a publish may take."""

KEY_CHARACTERS = 200

_LOG = logging.getLogger(__name__)

_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Idempotency:
    """One key of one client and the body that came with it."""

    def __init__(
        self, redis: Redis, client: str, key: str, body: bytes, under_way: int = UNDER_WAY_SECONDS
    ) -> None:
        if not (key and len(key) <= KEY_CHARACTERS and key.isascii() and key.isprintable()):
            raise Problem(
                400,
                "wrong-idempotency-key",
                f"Idempotency-Key: 1 to {KEY_CHARACTERS} printable ASCII characters.",
            )
        self._redis = redis
        self._key = f"gateway:idempotency:{hashlib.sha256(f'{client} {key}'.encode()).hexdigest()}"
        self.digest = hashlib.sha256(body).hexdigest()
        self._under_way = under_way
        self._mark = f"{self.digest} "

    async def begin(self) -> bytes | None:
        """The stored answer; or None, and the key is taken. Raises Problem 409 or 422 where it is in use."""
        # set and read in one step: the answer of another request cannot slip in between
        reply = await self._redis.set(self._key, self._mark, nx=True, get=True, ex=self._under_way)
        if reply is None:
            return None
        stored = cast("bytes", reply)
        digest, _, body = stored.partition(b" ")
        if digest.decode() != self.digest:
            raise _reused()
        if not body:
            raise Problem(
                409,
                "under-way",
                "A request with this Idempotency-Key is under way.",
                headers={"Retry-After": "1"},
            )
        return body

    async def same_body(self) -> None:
        """Remembers which body came with the key, and no answer. Raises Problem 422 where it was another one."""
        stored = await self._redis.set(self._key, self.digest, nx=True, get=True, ex=KEPT_SECONDS)
        if stored is not None and cast("bytes", stored).decode() != self.digest:
            raise _reused()

    async def store(self, body: bytes) -> None:
        """From now on the key gives this answer."""
        await self._redis.set(self._key, self._mark.encode() + body, ex=KEPT_SECONDS)

    async def release(self) -> None:
        """The request failed: the key is free for another try."""
        await self._redis.eval(_RELEASE, 1, self._key, self._mark)


async def once(
    deps: Deps,
    principal: Principal,
    key: str | None,
    body: bytes,
    make: Callable[[], Awaitable[bytes]],
    *,
    status: int = 200,
    under_way: int = UNDER_WAY_SECONDS,
) -> Response:
    """The answer that `make` makes, or with a `key` the one it made before. `body` is what a repeat has to have as well,
    `under_way` how many seconds `make` may take.

    Raises what `make` raises, and the key is free again; Problem 409 or 422 where the key is in use.
    """
    if key is None:
        return _answer(await make(), status)
    once = Idempotency(deps.redis, principal.name, key, body, under_way)
    async with deps.store():
        stored = await once.begin()
    if stored is not None:
        return _answer(stored, status, {"Idempotency-Replayed": "true"})
    try:
        answer = await make()
    except BaseException:
        await asyncio.shield(_quietly(deps, once.release()))
        raise
    await _quietly(deps, once.store(answer))
    return _answer(answer, status)


async def _quietly(deps: Deps, step: Awaitable[None]) -> None:
    """A step after which the answer stands either way: Redis away costs the key its memory, nothing else."""
    try:
        async with deps.store():
            await step
    except (RedisError, TimeoutError) as error:
        _LOG.warning("idempotency key not stored", extra={"error": type(error).__name__})


def _answer(body: bytes, status: int, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, "application/json")


def _reused() -> Problem:
    return Problem(422, "idempotency-key-reused", "This Idempotency-Key came with another body before.")
