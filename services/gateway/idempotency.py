"""`Idempotency-Key`: the same request again gets the first one's answer and publishes nothing.

| the process dies | what follows |
|---|---|
| before the broker confirmed | the mark of a request under way runs out; the repeat publishes the same event ids |
| after it, before the answer is stored | the same: the events are written twice, and applied once by their ids |

Shown by tests/integration/test_gateway_turns.py.
"""

from __future__ import annotations

import hashlib
from typing import cast

from redis.asyncio import Redis

from services.gateway.problems import Problem

KEPT_SECONDS = 24 * 3600
"""For how long an answer is repeated."""

UNDER_WAY_SECONDS = 60
"""A request under way blocks its key at most so long; more than a publish may take."""

KEY_CHARACTERS = 200

_RELEASE = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class Idempotency:
    """One key of one client and the body that came with it."""

    def __init__(self, redis: Redis, client: str, key: str, body: bytes) -> None:
        if not (key and len(key) <= KEY_CHARACTERS and key.isascii() and key.isprintable()):
            raise Problem(
                400,
                "wrong-idempotency-key",
                f"Idempotency-Key: 1 to {KEY_CHARACTERS} printable ASCII characters.",
            )
        self._redis = redis
        self._key = f"gateway:idempotency:{hashlib.sha256(f'{client} {key}'.encode()).hexdigest()}"
        self._digest = hashlib.sha256(body).hexdigest()
        self._mark = f"{self._digest} "

    async def begin(self) -> bytes | None:
        """The stored answer; or None, and the key is taken. Raises Problem 409 or 422 where it is in use."""
        # set and read in one step: the answer of another request cannot slip in between
        reply = await self._redis.set(self._key, self._mark, nx=True, get=True, ex=UNDER_WAY_SECONDS)
        if reply is None:
            return None
        stored = cast("bytes", reply)
        digest, _, body = stored.partition(b" ")
        if digest.decode() != self._digest:
            raise Problem(
                422, "idempotency-key-reused", "This Idempotency-Key came with another body before."
            )
        if not body:
            raise Problem(
                409,
                "under-way",
                "A request with this Idempotency-Key is under way.",
                headers={"Retry-After": "1"},
            )
        return body

    async def store(self, body: bytes) -> None:
        """From now on the key gives this answer."""
        await self._redis.set(self._key, self._mark.encode() + body, ex=KEPT_SECONDS)

    async def release(self) -> None:
        """The request failed: the key is free for another try."""
        await self._redis.eval(_RELEASE, 1, self._key, self._mark)
