"""GET context beside the pipeline at work, as a ratio to fetching the same bytes from Redis."""

from __future__ import annotations

from collections.abc import Callable
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
from tests.bench import load
from tests.bench.chats import Chats
from tests.bench.machine import CORES, servers, worker
from tests.bench.measure import open_loop, percentile
from tests.bench.pipeline import agents, flowing, publishing
from tests.bench.report import Outcome, Target

READS, TURNS = 200.0, 100.0
"""Requests and turns a second."""
CHATS = 50
FULL = 60
"""Turns that fill the window and leave some pending."""
ROUNDS, ROUND_S = 6, 5.0
TOKEN = "token-of-the-benchmark"

_TIERS = (
    (Tier.long_term, 1, LEVELS[Level.balanced].long_term_tokens),
    (Tier.merged, 4, MERGED_CEILING),
    (Tier.recent, 4, CHUNK_CEILING),
)


async def run(broker: str, quick: bool, progress: Callable[[str], None]) -> list[Outcome]:
    """Blocks of requests to the gateway and of GETs to Redis in turn, turns flowing all the while.

    Gateway and agents may run on any core: together they can need more than one.
    """
    rounds, seconds = (2, 2.0) if quick else (ROUNDS, ROUND_S)
    reads = int(READS * seconds)
    cores = set(CORES)
    async with (
        servers(broker) as settings,
        publishing(settings) as publisher,
        agents(settings, cores=cores) as running,
    ):
        tokens = {"AFTERTURN_SERVICE_TOKENS": f'["{TOKEN}"]'}
        pool = BlockingConnectionPool.from_url(settings.redis, max_connections=32)
        async with (
            worker(settings, "gateway", cores=cores, **tokens) as gateway,
            Redis.from_pool(pool) as redis,
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
        ):
            await _fill(redis)
            refused: list[int] = []

            async def ask(number: int) -> bytes:
                url = f"{gateway.url}/v1/chats/full-{number % CHATS}/context"
                async with http.get(url) as answer:
                    body = await answer.read()
                if answer.status == 503:  # overloaded: it counts with the time that it took, and is told
                    refused.append(number)
                elif answer.status != 200:
                    raise RuntimeError(f"the gateway answered {answer.status}: {body.decode()[:500]}")
                return body

            bodies = [await ask(number) for number in range(CHATS)]
            for number, body in enumerate(bodies):
                await redis.set(f"same-bytes-{number}", body)

            async def fetch(number: int) -> Any:
                return await redis.get(f"same-bytes-{number % CHATS}")

            asked: list[float] = []
            fetched: list[float] = []
            # a second of each first: connections are made, code is warm
            async with flowing(publisher, TURNS, 10 + 4 * rounds * seconds):
                await open_loop(READS, int(READS), ask)
                await open_loop(READS, int(READS), fetch)
                spent = {name: each.cpu for name, each in {**running, "gateway": gateway}.items()}
                for number in range(rounds):
                    asked += await open_loop(READS, reads, ask)
                    fetched += await open_loop(READS, reads, fetch)
                    progress(
                        f"round {number + 1}: context p99 {percentile(asked, 0.99) * 1e3:.1f} ms, "
                        f"Redis p99 {percentile(fetched, 0.99) * 1e3:.1f} ms so far"
                    )
                spent = {
                    name: each.cpu - spent[name] for name, each in {**running, "gateway": gateway}.items()
                }
            applied = await redis.hget(keys.ChatKeys.of("chat-0").window, "tn")
            if applied is None:
                raise RuntimeError("the pipeline was not at work")
    return [_outcome(broker, rounds, seconds, quick, bodies, asked, fetched, spent, len(refused))]


async def _fill(redis: Redis) -> None:
    """Chats whose window is full and whose tiers have four, four and one summary of the largest size."""
    counter = default_counter()
    chats = Chats(redis, counter)
    names = [f"full-{number}" for number in range(CHATS)]
    await chats.record(chats.prepare(names, FULL * CHATS))
    for name in names:
        summaries = list(_summaries(name, counter))
        stored = {summary.id: summary.model_dump_json(exclude_none=True) for summary in summaries}
        await redis.hset(keys.ChatKeys.of(name).summaries, mapping=stored)


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
    bodies: list[bytes],
    asked: list[float],
    fetched: list[float],
    spent: dict[str, float],
    refused: int,
) -> Outcome:
    size = sum(map(len, bodies)) / len(bodies)
    shares = (0.5, 0.9, 0.99, 1.0)
    context, plain = ([percentile(each, share) * 1e3 for share in shares] for each in (asked, fetched))
    rows: list[tuple[str | float, ...]] = [
        ("GET context", *context),
        ("GET of the same bytes, Redis", *plain),
        ("ratio", *(a / b for a, b in zip(context, plain, strict=True))),
    ]
    cores = ", ".join(f"{name} {used / (2 * rounds * seconds):.2f}" for name, used in spent.items())
    return Outcome(
        name="context",
        how=f"Broker: {broker}; {READS:.0f} requests/s on a fixed schedule, {len(asked):,} of each kind in "
        f"{rounds} round(s), {TURNS:.0f} turns/s through window, summarise and merge; answers of {size / 1024:.0f} KiB "
        "(window full, some pending, 4 + 4 + 1 summaries of the largest size).",
        columns=("ms from the moment it was due", "p50", "p90", "p99", "max"),
        rows=rows,
        targets=(
            Target("GET context, p99", context[2], 15.0, unit="ms"),
            Target("requests refused as overloaded", refused, 0),
        ),
        quick=quick,
        notes=(f"Cores used meanwhile, gateway idle half of the time: {cores}.",),
    )
