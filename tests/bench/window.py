"""Turns a second of the window agent, as a ratio to a bare loop and to a plain Faust agent in the same run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from statistics import median

from infra import topics
from infra.stack import Stack
from schemas.delivery import Outgoing, Topics
from services.settings import Settings
from streams.runtime.publisher import Publisher
from tests.bench.measure import Result

CHATS = 500
USER, ASSISTANT = 300, 900
"""Characters of the two messages of a turn."""
ROUNDS = 3
NAMES = ("bare", "plain", "agent")

_WORDS = (
    "the harbour was quiet when Mira counted the lamps again and wrote 1,204 into the book while the kettle "
    "sang and the rain went on about its business over the roofs of the old town "
)


def turn(number: int, chats: int = CHATS) -> Outgoing:
    """Turn `number` of the load, its chat in rotation."""
    chat = f"chat-{number % chats}"
    text = f"{number} " + _WORDS * 6
    event = {
        "type": "turn.recorded",
        "id": f"e-{number}",
        "at": "2026-06-01T12:00:00Z",
        "chat": {"id": chat, "surface": "web", "characters": ["mira"]},
        "user": {"id": f"user-{number % chats}"},
        "turn": {"id": f"t-{number}"},
        "messages": [
            {"id": f"m-{number}-u", "role": "user", "author": "user", "text": text[:USER]},
            {"id": f"m-{number}-a", "role": "assistant", "author": "mira", "text": text[:ASSISTANT]},
        ],
        "model": {"name": "deepseek-v3.1", "context_window": 65536},
    }
    return Outgoing(Topics.TURNS, chat.encode(), json.dumps(event).encode())


async def load(settings: Settings, turns: int) -> None:
    """Put the turns into the topic."""
    publisher = Publisher(settings)
    await publisher.start()
    for at in range(0, turns, 1_000):
        await publisher.publish([turn(number) for number in range(at, min(at + 1_000, turns))])
    await publisher.stop()


def measure(name: str, settings: Settings, turns: int) -> Result:
    """One loop in a process of its own, pinned to one core; the servers have the others."""
    command = [sys.executable, "-m", "tests.bench.loops", name, settings.kafka, settings.redis, str(turns)]
    cores = sorted(os.sched_getaffinity(0))
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, preexec_fn=lambda: os.sched_setaffinity(0, cores[-1:])
    )
    return Result.read(ran.stdout.splitlines()[-1])


async def run(broker: str, turns: int) -> dict[str, list[Result]]:
    """Rounds of all loops in turn, each on an empty Redis and from the start of the topic."""
    results: dict[str, list[Result]] = {name: [] for name in NAMES}
    for round_number in range(ROUNDS):
        async with Stack(broker) as stack:
            cores = sorted(os.sched_getaffinity(0))
            for server in (stack.broker_server, stack.redis_server):
                if server is not None and len(cores) > 1:
                    pin(server.pid, set(cores[:-1]))
            settings = Settings(kafka=stack.bootstrap, redis=stack.redis_url)
            await topics.apply(stack.bootstrap)
            await load(settings, turns)
            # the order rotates, so that none always has the warm page cache
            for name in NAMES[round_number % len(NAMES) :] + NAMES[: round_number % len(NAMES)]:
                result = await asyncio.to_thread(measure, name, settings, turns)
                results[name].append(result)
                print(f"  {broker} {name:5} {result.rate:8,.0f} turns/s  {result.cpu_us:6.1f} us CPU a turn", flush=True)
    return results


def pin(pid: int, cores: set[int]) -> None:
    """All threads of a process."""
    for task in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(task), cores)


def report(broker: str, results: dict[str, list[Result]]) -> None:
    """Medians and ratios."""
    rate = {name: median(r.rate for r in rounds) for name, rounds in results.items()}
    cpu = {name: median(r.cpu_us for r in rounds) for name, rounds in results.items()}
    print(
        f"{broker}: agent / bare {rate['agent'] / rate['bare']:.2f} (target 0.8), "
        f"agent / plain {rate['agent'] / rate['plain']:.2f} (target 2.5), "
        f"CPU agent / bare {cpu['agent'] / cpu['bare']:.2f} (target 2 at most)"
    )


if __name__ == "__main__":
    kind = sys.argv[1] if len(sys.argv) > 1 else "embedded"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 20_000
    report(kind, asyncio.run(run(kind, count)))
