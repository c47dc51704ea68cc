"""What it costs to rewind 1,000 turns, of a short chat and of a very long one; and what the model is asked again for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean

from pydantic_core import from_json
from redis.asyncio import Redis

from infra.stack import folders, valkey
from schemas.chat import Level
from schemas.summaries import Summary, Tier
from services.state import keys
from services.summaries.port import Draft, SourceMessage
from services.tokens.counter import default_counter
from tests.bench.chats import Chats
from tests.bench.clipping import Clipping
from tests.bench.length import Cost, Meter
from tests.bench.report import Outcome, Target

SHORT, LONG, BACK = 2_000, 20_000, 1_000
"""Turns of the chats, and how many are taken back."""
ROUNDS = 6
STEP = 107
"""Turns that the chats are longer in each round. The long-term memory, of which one version comes back, doubles until its
cap and is compressed again, in about six times as many: rounds meet it at every size."""
AFTER = 60
"""Turns that are recorded after it: so many that all that was pending again is summarised again."""


class Counting(Clipping):
    """Counts calls that read what was said before message number `point`."""

    def __init__(self) -> None:
        self.point = self.chunks = self.merges = 0

    async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
        self.chunks += messages[0].seq < self.point
        return await super().chunk(messages, level=level, budget=budget)

    async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
        self.merges += sources[-1].span.first_seq < self.point
        return await super().merge(sources, tier=tier, level=level, budget=budget)


@dataclass(frozen=True, slots=True)
class Rewound:
    """One rewind: its cost, chunks that span the point, chunks and merges that the model was asked for again."""

    cost: Cost
    spanning: int
    chunks: int
    merges: int


async def run(quick: bool, progress: Callable[[str], None]) -> list[Outcome]:
    """A short and a long chat in turn, in one process, on one Redis, without a broker."""
    short, long, back, rounds = (1_000, 3_000, 500, 3) if quick else (SHORT, LONG, BACK, ROUNDS)
    with folders.temporary() as folder:
        server = await asyncio.to_thread(valkey.start, folder / "redis", folder / "redis.log", keep=False)
        try:
            async with Redis.from_url(valkey.url(server)) as redis:
                found = await _measure(redis, (short, long), back, rounds, progress)
        finally:
            await asyncio.to_thread(server.stop)
    return [_outcome(found[short], found[long], (short, long, back), quick)]


async def _measure(
    redis: Redis, lengths: tuple[int, int], back: int, rounds: int, progress: Callable[[str], None]
) -> dict[int, list[Rewound]]:
    counting = Counting()
    chats, meter = Chats(redis, default_counter(), counting), Meter(redis)
    started = time.monotonic()
    found: dict[int, list[Rewound]] = {length: [] for length in lengths}
    # the first one of all loads the script
    await chats.grow(["another"], 2)
    await _rewind(redis, chats, counting, meter, "another", 1)
    for number in range(rounds):
        for length in lengths if number % 2 else reversed(lengths):
            chat = f"chat-{length}"
            there = await redis.llen(keys.ChatKeys.of(chat).turn_order)
            await chats.grow([chat], length + STEP * number - there)
            found[length].append(await _rewind(redis, chats, counting, meter, chat, back))
        progress(f"round {number + 1}, {time.monotonic() - started:.0f} s")
    return found


async def _rewind(
    redis: Redis, chats: Chats, counting: Counting, meter: Meter, chat: str, back: int
) -> Rewound:
    k = keys.ChatKeys.of(chat)
    (turn,) = await redis.lrange(k.turn_order, -back - 1, -back - 1)
    first, size = map(int, (await redis.hget(k.turns, turn)).split()[1:3])
    counting.point, counting.chunks, counting.merges = first + size, 0, 0
    spanning = await _spanning(redis, chat, counting.point)
    event = chats.rewind(chat, turn.decode())
    cost = await meter.cost(partial(chats.record, [event]), back)
    await chats.settle()
    await chats.grow([chat], AFTER)
    return Rewound(cost, spanning, counting.chunks, counting.merges)


async def _spanning(redis: Redis, chat: str, point: int) -> int:
    """Chunks with messages on both sides of the point."""
    k = keys.ChatKeys.of(chat)
    stored = [*await redis.hvals(k.summaries), *await redis.hvals(k.archived_summaries)]
    spans = [summary["span"] for summary in map(from_json, stored) if summary["tier"] == "recent"]
    return sum(span["first_seq"] < point <= span["last_seq"] for span in spans)


def _outcome(short: list[Rewound], long: list[Rewound], sizes: tuple[int, int, int], quick: bool) -> Outcome:
    first, second, back = sizes

    def row(what: str, value: Callable[[Cost], float], scale: float = 1) -> tuple[str, float, float, float]:
        one, other = (fmean(value(each.cost) * scale * back for each in found) for found in (short, long))
        return what, one, other, other / one

    rows = [
        row("commands of Redis", lambda cost: cost.commands),
        row("KiB to Redis", lambda cost: cost.sent, 1 / 1024),
        row("KiB from Redis", lambda cost: cost.received, 1 / 1024),
        row("seconds", lambda cost: cost.wall),
        row("seconds of the service's processor", lambda cost: cost.cpu),
        row("seconds of Redis's processor", lambda cost: cost.redis),
    ]
    every = [*short, *long]
    over = max(each.chunks - each.spanning for each in every)
    asked, spanning, merges = (
        sum(getattr(each, name) for each in every) for name in ("chunks", "spanning", "merges")
    )
    return Outcome(
        name="rewind",
        how=f"Rewinding {back:,} turns of a chat of {first:,} turns and of one of {second:,}, all summarised and merged, "
        f"{len(short)} round(s), one process, no broker; then {AFTER} turns more.",
        columns=("rewinding costs", f"at {first:,} turns", f"at {second:,} turns", "ratio"),
        rows=rows,
        targets=(
            Target("model calls for kept text, beyond chunks that span the point", over, 0),
            *(Target(f"{what}, {second:,} turns / {first:,}", ratio, 1.1) for what, _, _, ratio in rows[:3]),
        ),
        quick=quick,
        notes=(
            f"{asked} chunks with kept text were summarised again, {spanning} spanned the point; {merges} merges, made of "
            "their parts again, have kept text.",
        ),
    )
