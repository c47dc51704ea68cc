"""The pipeline as processes of its own, with turns flowing through it at a steady rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from services.settings import Settings
from streams.runtime.publisher import Publisher
from tests.bench import load
from tests.bench.machine import WORKER_CORES, Worker, worker
from tests.bench.measure import open_loop

AGENTS = ("window", "summarise", "merge")


@asynccontextmanager
async def agents(
    settings: Settings, names: tuple[str, ...] = AGENTS, cores: set[int] = WORKER_CORES
) -> AsyncIterator[dict[str, Worker]]:
    """One worker of each, on these cores."""
    async with AsyncExitStack() as opened:
        opening = [
            opened.enter_async_context(worker(settings, "worker", name, cores=cores)) for name in names
        ]
        yield dict(zip(names, await asyncio.gather(*opening), strict=True))


@asynccontextmanager
async def publishing(settings: Settings) -> AsyncIterator[Publisher]:
    """A connected publisher."""
    publisher = Publisher(settings)
    await publisher.start()
    try:
        yield publisher
    finally:
        await publisher.stop()


@asynccontextmanager
async def flowing(
    publisher: Publisher, rate: float, seconds: float, chats: int, first: int
) -> AsyncIterator[None]:
    """Turns from number `first` on, over so many chats, at this rate during the block, for at most `seconds`."""

    async def send(number: int) -> None:
        await publisher.publish([load.record(first + number, chats)])

    sending = asyncio.create_task(open_loop(rate, int(rate * seconds), send))
    try:
        yield
        if sending.done():
            sending.result()  # raises what went wrong
    finally:
        sending.cancel()
        await asyncio.wait({sending})
