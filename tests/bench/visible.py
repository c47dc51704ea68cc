"""From publishing a turn to its being in the window."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from pydantic_core import from_json
from redis.asyncio import Redis

from services.state import keys
from streams.runtime.publisher import Publisher
from tests.bench import load
from tests.bench.machine import servers
from tests.bench.measure import open_loop, percentile
from tests.bench.pipeline import agents, publishing
from tests.bench.report import Outcome, Target

RATE = 300.0
SECONDS = 30.0
WARM_S = 3.0


class Arrivals:
    """Hears the live channels of all chats. Version n of a chat's window is that with its n-th turn: nothing else
    changes it here."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._expected: dict[tuple[bytes, int], asyncio.Future[None]] = {}
        self._next: dict[bytes, int] = {}

    def expect(self, chat: str) -> asyncio.Future[None]:
        """Done when the next turn of this chat is visible. To be called in the order of publishing."""
        channel = keys.channel(chat).encode()
        version = self._next[channel] = self._next.get(channel, 0) + 1
        arrival = asyncio.get_running_loop().create_future()
        self._expected[channel, version] = arrival
        return arrival

    async def listen(self, subscribed: asyncio.Event) -> None:
        """Until cancelled."""
        async with self._redis.pubsub() as pubsub:
            await pubsub.psubscribe("{c:*}:live")
            async for message in pubsub.listen():
                if message["type"] == "psubscribe":
                    subscribed.set()
                elif message["type"] == "pmessage":
                    hint = from_json(message["data"])
                    if hint["type"] == "window":
                        arrival = self._expected.pop((message["channel"], hint["version"]), None)
                        if arrival is not None and not arrival.done():
                            arrival.set_result(None)


async def run(broker: str, quick: bool, progress: Callable[[str], None]) -> list[Outcome]:
    """Turns on a fixed schedule into a worker of its own core."""
    seconds = 3.0 if quick else SECONDS
    async with (
        servers(broker) as settings,
        publishing(settings) as publisher,
        agents(settings, ("window",)) as running,
        Redis.from_url(settings.redis) as redis,
    ):
        arrivals, subscribed = Arrivals(redis), asyncio.Event()
        listening = asyncio.create_task(arrivals.listen(subscribed))
        await subscribed.wait()
        try:
            async with asyncio.timeout(2 * (seconds + WARM_S) + 30):
                warm = int(RATE * WARM_S)
                await _send(publisher, arrivals, 0, warm)
                spent = running["window"].cpu
                visible, confirmed = await _send(publisher, arrivals, warm, int(RATE * seconds))
                spent = running["window"].cpu - spent
        finally:
            listening.cancel()
            await asyncio.wait({listening})
        progress(f"p50 {percentile(visible, 0.5) * 1e3:.1f} ms, p99 {percentile(visible, 0.99) * 1e3:.1f} ms")
    return [_outcome(broker, seconds, quick, visible, confirmed, spent)]


async def _send(
    publisher: Publisher, arrivals: Arrivals, first: int, count: int
) -> tuple[list[float], list[float]]:
    """Seconds from the moment a turn was due until it was visible; from the call of the producer until confirmed."""
    confirmed: list[float] = []

    async def one(number: int) -> None:
        record = load.record(first + number)
        arrival = arrivals.expect(record.key.decode())
        began = time.perf_counter()
        await publisher.publish([record])
        confirmed.append(time.perf_counter() - began)
        await arrival

    return await open_loop(RATE, count, one), confirmed


def _outcome(
    broker: str, seconds: float, quick: bool, visible: list[float], confirmed: list[float], spent: float
) -> Outcome:
    shares = (0.5, 0.9, 0.99, 1.0)
    rows: list[tuple[str | float, ...]] = [
        (name, *(percentile(latencies, share) * 1e3 for share in shares))
        for name, latencies in (
            ("visible in the window", visible),
            ("of that: confirmed by the broker", confirmed),
        )
    ]
    return Outcome(
        name=f"visible-{broker}",
        how=f"Broker: {broker}; {RATE:.0f} turns/s on a fixed schedule over {load.CHATS} chats for {seconds:.0f} s, "
        "one window worker; heard on the chats' live channels.",
        columns=("ms from the moment it was due", "p50", "p90", "p99", "max"),
        rows=rows,
        targets=(Target("publish to visible, p99", percentile(visible, 0.99) * 1e3, 150.0, unit="ms"),),
        quick=quick,
        notes=(
            f"The worker used {spent / seconds:.2f} of its core, {spent / len(visible) * 1e6:.0f} us a turn.",
        ),
    )
