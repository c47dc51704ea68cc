"""GET context beside the pipeline at work, as a ratio to fetching the same bytes from Redis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import aiohttp
from redis.asyncio import BlockingConnectionPool, Redis

from schemas.chat import LEVELS, Level
from schemas.chunks import Span
from schemas.summaries import Body, Provenance, Summary, Tier, TimelineLine
from services.state import keys
from services.summaries.policy import CHUNK_CEILING, MERGED_CEILING
from services.summaries.render import render
from services.tokens.counter import TokenCounter, default_counter
from streams.runtime.publisher import Publisher
from tests.bench import load
from tests.bench.chats import Chats
from tests.bench.machine import CORES, Worker, servers, worker
from tests.bench.measure import open_loop, percentile
from tests.bench.pipeline import agents, flowing, publishing
from tests.bench.report import Outcome, Target
from tests.stack import until

READS, TURNS = 200.0, 50.0
"""Requests and turns a second. With the load itself on the same machine, 100 turns/s leave two cores no idle time."""
CHATS = 50
FULL = 60
"""Turns that fill the window and leave some pending."""
ROUNDS, ROUND_S = 6, 5.0
FILL_S = 120.0
TOKEN = "token-of-the-benchmark"
COLUMNS = ("ms from the moment it was due", "p50", "p90", "p99", "max")

_TIERS = (
    (Tier.long_term, 1, LEVELS[Level.balanced].long_term_tokens),
    (Tier.merged, 4, MERGED_CEILING),
    (Tier.recent, 4, CHUNK_CEILING),
)


@dataclass
class Reads:
    """Seconds of every request and of every GET, the answers' sizes, and how many were refused."""

    asked: list[float] = field(default_factory=list)
    fetched: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    refused: int = 0

    @property
    def size(self) -> float:
        """KiB of an answer, on average."""
        return sum(self.sizes) / len(self.sizes) / 1024

    @property
    def p99(self) -> float:
        """Milliseconds that 99 % of the requests did not exceed."""
        return percentile(self.asked, 0.99) * 1e3

    def rows(self) -> list[tuple[str | float, ...]]:
        """Under COLUMNS: requests, GETs, and the one over the other."""
        context, plain = (
            [percentile(each, share) * 1e3 for share in (0.5, 0.9, 0.99, 1.0)]
            for each in (self.asked, self.fetched)
        )
        ratios = [a / b for a, b in zip(context, plain, strict=True)]
        return [("GET context", *context), ("GET of the same bytes, Redis", *plain), ("ratio", *ratios)]


async def run(broker: str, quick: bool, progress: Callable[[str], None]) -> list[Outcome]:
    """Blocks of requests to the gateway and of GETs to Redis in turn, turns flowing all the while.

    Gateway and agents may run on any core: together they can need more than one.
    """
    rounds, seconds = (2, 2.0) if quick else (ROUNDS, ROUND_S)
    cores = set(CORES)
    tokens = {"AFTERTURN_SERVICE_TOKENS": f'["{TOKEN}"]'}
    async with (
        servers(broker) as settings,
        publishing(settings) as publisher,
        agents(settings, cores=cores) as running,
        worker(settings, "gateway", cores=cores, **tokens) as gateway,
        Redis.from_pool(BlockingConnectionPool.from_url(settings.redis, max_connections=32)) as redis,
        aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
    ):
        await fill(redis)
        await _overflow(publisher, redis, running["window"], http)
        workers = {**running, "gateway": gateway}
        async with flowing(publisher, TURNS, 10 + 4 * rounds * seconds, CHATS, FULL * CHATS):
            before = {name: each.cpu for name, each in workers.items()}
            done = {name: await each.metric(http, "done_total") for name, each in running.items()}
            reads = await read(gateway, redis, http, rounds, seconds, progress)
            spent = {name: each.cpu - before[name] for name, each in workers.items()}
            done = {
                name: await each.metric(http, "done_total") - done[name] for name, each in running.items()
            }
    return [_outcome(broker, rounds, seconds, quick, reads, spent, done)]


async def read(
    gateway: Worker,
    redis: Redis,
    http: aiohttp.ClientSession,
    rounds: int,
    seconds: float,
    progress: Callable[[str], None],
) -> Reads:
    """Blocks of requests and of GETs in turn, of the chats that `fill` made."""
    reads = Reads()

    async def ask(number: int) -> bytes:
        async with http.get(f"{gateway.url}/v1/chats/full-{number % CHATS}/context") as answer:
            body = await answer.read()
        if answer.status == 503:  # overloaded: it counts with the time that it took, and is told
            reads.refused += 1
        elif answer.status != 200:
            raise RuntimeError(f"the gateway answered {answer.status}: {body.decode()[:500]}")
        return body

    async def fetch(number: int) -> Any:
        return await redis.get(f"same-bytes-{number % CHATS}")

    for number in range(CHATS):
        body = await ask(number)
        reads.sizes.append(len(body))
        await redis.set(f"same-bytes-{number}", body)
    # a second of each first: connections are made, code is warm
    await open_loop(READS, int(READS), ask)
    await open_loop(READS, int(READS), fetch)
    reads.refused = 0
    for number in range(rounds):
        reads.asked += await open_loop(READS, int(READS * seconds), ask)
        reads.fetched += await open_loop(READS, int(READS * seconds), fetch)
        context, plain = (percentile(each, 0.99) * 1e3 for each in (reads.asked, reads.fetched))
        progress(f"round {number + 1}: p99 so far {context:.1f} ms, Redis {plain:.1f} ms")
    return reads


async def _overflow(publisher: Publisher, redis: Redis, window: Worker, http: aiohttp.ClientSession) -> None:
    """Fill the windows of the chats that turns flow into, so that from then on chunks close all the time."""
    await load.publish(publisher, range(FULL * CHATS), chats=CHATS)

    async def summarised() -> bool:
        return await window.metric(http, "done_total") >= FULL * CHATS and not await _waiting(redis)

    await until(summarised, "the turns before the measurement are summarised", FILL_S)


async def _waiting(redis: Redis) -> int:
    """Chunks of these chats that no summary covers yet."""
    pipe = redis.pipeline(transaction=False)
    for number in range(CHATS):
        pipe.hlen(keys.ChatKeys.of(f"chat-{number}").chunks)
    return sum(await pipe.execute())


async def fill(redis: Redis, characters: Sequence[str] = load.CHARACTERS) -> list[str]:
    """Chats whose window is full and whose tiers have four, four and one summary of the largest size; their ids."""
    counter = default_counter()
    chats = Chats(redis, counter, characters=characters)
    names = [f"full-{number}" for number in range(CHATS)]
    await chats.record(chats.prepare(names, FULL * CHATS))
    for name in names:
        summaries = list(_summaries(name, counter))
        stored = {summary.id: summary.model_dump_json(exclude_none=True) for summary in summaries}
        await redis.hset(keys.ChatKeys.of(name).summaries, mapping=stored)
    return names


def _summaries(chat: str, counter: TokenCounter) -> Any:
    number = 0
    for tier, count, tokens in _TIERS:
        for _ in range(count):
            lines: list[TimelineLine] = []
            while counter(render(Body(timeline=tuple(lines)))) < tokens:
                step = max(1, tokens // 400)
                lines += [
                    TimelineLine(
                        text=load.text(number * 1_000 + len(lines) + each, 160), first_seq=0, last_seq=9
                    )
                    for each in range(step)
                ]
            body = Body(timeline=tuple(lines))
            made = render(body)
            yield Summary(
                id=f"summary-{number}",
                chat_id=chat,
                tier=tier,
                generation=0,
                span=Span(first_seq=number, last_seq=number, first_message="a", last_message="b", messages=1),
                body=body,
                text=made,
                tokens=counter(made),
                provenance=Provenance(
                    model="none", prompt_version="1", level=Level.balanced, chunk_ids=(f"chunk-{number}",)
                ),
                created_at=datetime(2026, 6, 1, tzinfo=UTC),
            )
            number += 1


def _outcome(
    broker: str,
    rounds: int,
    seconds: float,
    quick: bool,
    reads: Reads,
    spent: dict[str, float],
    done: dict[str, float],
) -> Outcome:
    rows = reads.rows()
    used = ", ".join(f"{name} {each:.1f}" for name, each in spent.items())
    return Outcome(
        name="context",
        how=f"Broker: {broker}; {READS:.0f} requests/s on a fixed schedule, {len(reads.asked):,} of each kind in "
        f"{rounds} round(s), {TURNS:.0f} turns/s through window, summarise and merge (these two at their default "
        f"priority); answers of {reads.size:.0f} KiB "
        "(window full, some pending, 4 + 4 + 1 summaries of the largest size).",
        columns=COLUMNS,
        rows=rows,
        targets=(
            Target("GET context, p99", reads.p99, 15.0, unit="ms"),
            Target("requests refused as overloaded", reads.refused, 0),
        ),
        quick=quick,
        notes=(
            f"Processor seconds used by {used}, in {2 * (rounds * seconds + 1):.0f} s.",
            f"Records handled meanwhile: {', '.join(f'{name} {each:,.0f}' for name, each in done.items())}.",
        ),
    )
