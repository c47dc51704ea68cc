"""GET context of a chat with four characters whose memories, and the global ones, are as many as there can be."""

from __future__ import annotations

from collections.abc import Callable

import aiohttp
from redis.asyncio import BlockingConnectionPool, Redis

from schemas import limits
from services.tokens.counter import default_counter
from tests.bench import saved
from tests.bench.context import CHATS, COLUMNS, READS, ROUND_S, ROUNDS, TOKEN, Reads, fill, read
from tests.bench.machine import Worker, servers, worker
from tests.bench.report import Outcome, Target

COMPANY = ("mira", "tom", "ada", "bo")
EACH = limits.MEMORIES_UNPINNED + limits.MEMORIES_PINNED


async def run(broker: str, quick: bool, progress: Callable[[str], None]) -> list[Outcome]:
    """Blocks of requests to the gateway, which has a core for itself, and of GETs to Redis in turn."""
    rounds, seconds = (2, 2.0) if quick else (ROUNDS, ROUND_S)
    tokens = {"AFTERTURN_SERVICE_TOKENS": f'["{TOKEN}"]'}
    async with (
        servers(broker) as settings,
        worker(settings, "gateway", **tokens) as gateway,
        Redis.from_pool(BlockingConnectionPool.from_url(settings.redis, max_connections=32)) as redis,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
    ):
        chats = await fill(redis, COMPANY)
        await saved.fill(redis, default_counter(), [f"user-of-{name}" for name in chats], COMPANY)
        progress(f"{CHATS} chats, each with {1 + len(COMPANY)} full scopes")
        entries = await _entries(gateway, http, chats)
        reads = await read(gateway, redis, http, rounds, seconds, progress)
    return [_outcome(broker, rounds, quick, reads, entries)]


async def _entries(gateway: Worker, http: aiohttp.ClientSession, names: list[str]) -> int:
    """How many memories a context has. Raises RuntimeError where they are not all that one can have."""
    sizes = set()
    for name in names:
        async with http.get(f"{gateway.url}/v1/chats/{name}/context") as answer:
            parts = (await answer.json())["parts"]
        sizes.add(sum(len(part["entries"]) for part in parts if part["part"] == "memories"))
    if sizes != {(1 + len(COMPANY)) * limits.MEMORIES_PINNED + limits.MEMORIES_UNPINNED}:
        raise RuntimeError(f"contexts have {sizes} memories")
    return sizes.pop()


def _outcome(broker: str, rounds: int, quick: bool, reads: Reads, entries: int) -> Outcome:
    return Outcome(
        name="context-memories",
        how=f"Broker: {broker}, at rest; {READS:.0f} requests/s on a fixed schedule, {len(reads.asked):,} of each kind "
        f"in {rounds} round(s); {1 + len(COMPANY)} scopes of {EACH} memories of {saved.CHARACTERS} characters, {entries} of "
        f"them in an answer of {reads.size:.0f} KiB (window full, some pending, 4 + 4 + 1 summaries of the largest size).",
        columns=COLUMNS,
        rows=reads.rows(),
        targets=(
            Target("GET context with 5 full scopes, p99", reads.p99, 25.0, unit="ms"),
            Target("requests refused as overloaded", reads.refused, 0),
        ),
        quick=quick,
    )
