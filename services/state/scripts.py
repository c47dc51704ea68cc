"""Lua scripts: loaded by their digest, and loaded again where Redis has forgotten them (a restart, a failover)."""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from hiredis import pack_command
from redis.asyncio import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError, TimeoutError


class Script:
    """One script. Constants of the models are put in by name (`@NAME@`), so that they have one source."""

    def __init__(self, package: str, name: str, constants: Mapping[str, str] | None = None) -> None:
        text = (files(package) / name).read_text()
        for constant, value in (constants or {}).items():
            if f"@{constant}@" not in text:
                raise ValueError(f"{name} has no place for {constant}")
            text = text.replace(f"@{constant}@", value)
        self.text = text
        self.sha = hashlib.sha1(text.encode()).hexdigest()

    async def run(self, redis: Redis, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """One call."""
        return (await self.run_all(redis, [(keys, args)]))[0]

    async def run_all(self, redis: Redis, calls: Sequence[tuple[Sequence[str], Sequence[Any]]]) -> list[Any]:
        """Several calls in one round trip, in order; not one transaction. Raises what Redis answers first as an error.

        Scripts are idempotent (they carry ids and watermarks): a pipeline that was broken off is run again as a whole.
        """
        # packed in C: the client's own packing takes longer than the rest of a call
        packed = [pack_command(("EVALSHA", self.sha, len(keys), *keys, *args)) for keys, args in calls]
        for attempt in (1, 2):
            answers = await exchange(redis, packed)
            error = next((answer for answer in answers if isinstance(answer, RedisError)), None)
            if error is None:
                return answers
            if attempt == 2 or not isinstance(error, NoScriptError):
                raise error
            await redis.script_load(self.text)
        raise AssertionError("unreachable")


async def exchange(redis: Redis, packed: Sequence[bytes]) -> list[Any]:
    """Send commands and read an answer to each; errors are among the answers. Raises ConnectionError, TimeoutError.

    A connection on which an answer is outstanding is never given back open: the next user would read it. The connection's
    time limit holds for all answers together: a timer for each of them takes as long as reading it.
    """
    pool = redis.connection_pool
    connection = await pool.get_connection()  # type: ignore[no-untyped-call]
    complete = False
    try:
        await connection.send_packed_command(packed)
        answers: list[Any] = []
        async with asyncio.timeout(connection.socket_timeout):
            for _ in packed:
                try:
                    answers.append(await connection.read_response(timeout=math.inf))
                except ResponseError as error:
                    answers.append(error)
        complete = True
        return answers
    except builtins.TimeoutError as error:
        raise TimeoutError(f"no answer within {connection.socket_timeout} s") from error
    finally:
        if not complete:
            await connection.disconnect(nowait=True)
        await pool.release(connection)
