"""From publishing a command on saved memories to its being in the store."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json
from redis.asyncio import Redis

from schemas.delivery import Outgoing, Topics
from schemas.memories import Author, MemoryOps, Source
from services.tokens.counter import default_counter
from streams.runtime.publisher import Publisher
from tests.bench import saved
from tests.bench.machine import servers
from tests.bench.measure import open_loop, percentile
from tests.bench.pipeline import agents, publishing
from tests.bench.report import Outcome, Target

RATE = 200.0
CHARACTER = "mira"
SECONDS = 30.0
WARM_S = 3.0
USERS = 100


@dataclass
class Results:
    """Hears what becomes of every user's commands: told in the step that stores it."""

    redis: Redis
    statuses: Counter[str] = field(default_factory=Counter)
    subscribed: asyncio.Event = field(default_factory=asyncio.Event)
    _expected: dict[str, asyncio.Future[None]] = field(default_factory=dict)

    def expect(self, command: str) -> asyncio.Future[None]:
        """Done when the command has taken effect."""
        arrival = self._expected[command] = asyncio.get_running_loop().create_future()
        return arrival

    async def listen(self) -> None:
        """Until cancelled."""
        async with self.redis.pubsub() as pubsub:
            await pubsub.psubscribe("{u:*}:live")
            async for message in pubsub.listen():
                if message["type"] == "psubscribe":
                    self.subscribed.set()
                elif message["type"] == "pmessage":
                    changed = from_json(message["data"])
                    self.statuses.update(result["status"] for result in changed["results"])
                    arrival = self._expected.pop(changed["command_id"], None)
                    if arrival is not None and not arrival.done():
                        arrival.set_result(None)


async def run(broker: str, quick: bool, progress: Callable[[str], None]) -> list[Outcome]:
    """Commands on a fixed schedule into a worker of its own core."""
    seconds = 3.0 if quick else SECONDS
    users = [f"user-{number}" for number in range(USERS)]
    async with (
        servers(broker) as settings,
        Redis.from_url(settings.redis) as redis,
    ):
        await saved.fill(redis, default_counter(), users, [CHARACTER])
        progress(f"{USERS} users have two full scopes each")
        async with publishing(settings) as publisher, agents(settings, ("memories",)) as running:
            results = Results(redis)
            listening = asyncio.create_task(results.listen())
            await results.subscribed.wait()
            try:
                async with asyncio.timeout(2 * (seconds + WARM_S) + 30):
                    warm = int(RATE * WARM_S)
                    await _send(publisher, results, users, 0, warm)
                    results.statuses.clear()
                    spent = running["memories"].cpu
                    visible, confirmed = await _send(publisher, results, users, warm, int(RATE * seconds))
                    spent = running["memories"].cpu - spent
            finally:
                listening.cancel()
                await asyncio.wait({listening})
        progress(f"p50 {percentile(visible, 0.5) * 1e3:.1f} ms, p99 {percentile(visible, 0.99) * 1e3:.1f} ms")
    return [_outcome(broker, seconds, quick, visible, confirmed, spent, results.statuses)]


def _record(number: int, users: list[str]) -> Outgoing:
    """What the character of a user does in a reply: of ten a save for seven, which displaces one, an update of one that
    an earlier reply saved for two, a deletion of such a one for one."""
    user, turn = users[number % len(users)], number // len(users)
    op: dict[str, Any] = {"op": "save", "id": f"saved-{turn}", "text": saved.text(1_000_000 + number)}
    if turn % 10 in (3, 6):
        op = {"op": "update", "id": f"saved-{turn - 1}", "text": op["text"]}
    elif turn % 10 == 9:
        op = {"op": "delete", "id": f"saved-{turn - 1}"}
    command = MemoryOps(
        id=f"k-{number}",
        at=saved.AT,
        user_id=user,
        by=Author.character,
        character=CHARACTER,
        characters=(CHARACTER,),
        source=Source(chat=f"chat-of-{user}", turn=f"t-{turn}"),
        ops=(op,),
    )
    value = command.model_dump_json(exclude_none=True).encode()
    return Outgoing(Topics.MEMORY_COMMANDS, user.encode(), value)


async def _send(
    publisher: Publisher, results: Results, users: list[str], first: int, count: int
) -> tuple[list[float], list[float]]:
    """Seconds from the moment a command was due until it was visible; from the call of the producer until confirmed."""
    confirmed: list[float] = []

    async def one(number: int) -> None:
        record = _record(first + number, users)
        arrival = results.expect(f"k-{first + number}")
        began = time.perf_counter()
        await publisher.publish([record])
        confirmed.append(time.perf_counter() - began)
        await arrival

    return await open_loop(RATE, count, one), confirmed


def _outcome(
    broker: str,
    seconds: float,
    quick: bool,
    visible: list[float],
    confirmed: list[float],
    spent: float,
    statuses: Counter[str],
) -> Outcome:
    shares = (0.5, 0.9, 0.99, 1.0)
    rows: list[tuple[str | float, ...]] = [
        (name, *(percentile(latencies, share) * 1e3 for share in shares))
        for name, latencies in (
            ("visible in the store", visible),
            ("of that: confirmed by the broker", confirmed),
        )
    ]
    became = ", ".join(f"{count:,} {status}" for status, count in statuses.most_common())
    return Outcome(
        name=f"memories-{broker}",
        how=f"Broker: {broker}; {RATE:.0f} commands/s on a fixed schedule over {USERS} users with full scopes for "
        f"{seconds:.0f} s, one memories worker; heard on the users' live channels.",
        columns=("ms from the moment it was due", "p50", "p90", "p99", "max"),
        rows=rows,
        targets=(
            Target(
                "a memory command, publish to visible, p99", percentile(visible, 0.99) * 1e3, 150.0, unit="ms"
            ),
        ),
        quick=quick,
        notes=(
            f"Of the operations: {became}.",
            f"The worker used {spent / seconds:.2f} of its core, {spent / len(visible) * 1e6:.0f} us a command.",
        ),
    )
