"""What waits for Kafka ends when it is asked to."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from infra.stack.ports import LOOPBACK, free_ports
from streams.cli.start import entered


@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", [("worker", "window"), ("gateway",)])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_process_that_waits_for_kafka_ends_when_it_is_asked_to(
    command: tuple[str, ...], number: signal.Signals
) -> None:
    nobody, port = free_ports(2)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from streams.cli import main; main()", *command),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=os.environ
        | {
            "AFTERTURN_KAFKA": f"{LOOPBACK}:{nobody}",
            "AFTERTURN_GATEWAY_PORT": str(port),
            "AFTERTURN_HEALTH_PORT": str(port),
        },
    )
    assert process.stdout is not None
    # it has begun to wait
    while b"Kafka does not answer" not in (line := await process.stdout.readline()):
        assert line
    process.send_signal(number)
    rest = await process.stdout.read()
    assert await process.wait() == 0
    assert b"Traceback" not in rest


@asynccontextmanager
async def context(left: list[str], begins: asyncio.Event) -> AsyncIterator[str]:
    try:
        await begins.wait()
        yield "entered"
    finally:
        left.append("left")


async def test_what_is_entered_in_time_is_left_with_the_others() -> None:
    left: list[str] = []
    begins, stop = asyncio.Event(), asyncio.Event()
    begins.set()
    async with AsyncExitStack() as opened:
        assert await entered(opened, context(left, begins), stop) == "entered"
        assert left == []
    assert left == ["left"]


async def test_what_is_not_entered_in_time_is_left_at_once() -> None:
    left: list[str] = []
    stop = asyncio.Event()
    stop.set()
    async with AsyncExitStack() as opened:
        assert await entered(opened, context(left, asyncio.Event()), stop) is None
        assert left == ["left"]
