"""A batch of commands has one time limit, and a connection with an answer outstanding is not used again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from redis.exceptions import NoScriptError, TimeoutError

from services.state.scripts import exchange


class Connection:
    """Answers as it is told; waits where it has no more answers."""

    def __init__(self, answers: list[Any], limit: float | None) -> None:
        self.answers = answers
        self.socket_timeout = limit
        self.log: list[str] = []

    async def send_packed_command(self, packed: Any) -> None:
        self.log.append("sent")

    async def read_response(self, timeout: float | None = None) -> Any:
        if not self.answers:
            await asyncio.Event().wait()
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def disconnect(self, nowait: bool = False) -> None:
        self.log.append("disconnected")


def _redis(connection: Connection) -> Any:
    async def get_connection() -> Connection:
        return connection

    async def release(_: Connection) -> None:
        connection.log.append("released")

    return SimpleNamespace(connection_pool=SimpleNamespace(get_connection=get_connection, release=release))


async def test_errors_are_among_the_answers() -> None:
    error = NoScriptError("NOSCRIPT")
    connection = Connection([b"1", error, b"3"], limit=None)
    assert await exchange(_redis(connection), [b"x"] * 3) == [b"1", error, b"3"]
    assert connection.log == ["sent", "released"]


async def test_an_answer_that_does_not_come_ends_the_connection() -> None:
    connection = Connection([b"1"], limit=0.001)
    with pytest.raises(TimeoutError, match=r"no answer within 0\.001 s"):
        await exchange(_redis(connection), [b"x", b"y"])
    assert connection.log == ["sent", "disconnected", "released"]


async def test_a_cancelled_exchange_ends_the_connection() -> None:
    connection = Connection([b"1"], limit=30)
    task = asyncio.create_task(exchange(_redis(connection), [b"x", b"y"]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert connection.log == ["sent", "disconnected", "released"]
