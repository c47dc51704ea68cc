"""Workers of all kinds are killed at random while they work: nothing is lost, nothing is doubled, nothing is paid twice,
and what was taken back is gone."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from infra.stack import Server, valkey
from tests.faults import memories
from tests.faults.load import Load, plan
from tests.faults.run import IN_FLIGHT, Run, number, opened
from tests.faults.trouble import COMMANDS
from tests.faults.workers import FULL
from tests.stack import Broker

CHATS, TURNS, KILLS, SECONDS = (
    number("CHATS", 150),
    number("TURNS", 50),
    number("KILLS", 12),
    number("SECONDS", 30),
)
DRAIN_SECONDS = 240.0


async def killing(run: Run, dice: random.Random) -> None:
    """Kill every few seconds, the first time when the first summaries are being made."""
    while not run.model.calls:
        run.workers.check_running()
        await asyncio.sleep(0.05)
    pause = SECONDS / KILLS
    for victim in run.workers.victims(KILLS, dice):
        if victim.agent in ("summarise", "merge"):
            await run.model.busy()
        await run.workers.kill(victim)
        await asyncio.sleep(dice.uniform(0.5 * pause, 1.5 * pause))


@pytest.mark.timeout(900)
@pytest.mark.rule("W4", "W6", "W7", "W8", "S1", "S2", "M3", "M8", "M9", "M11", "C1", "C2", "F4")
async def test_random_kills(broker: Broker, own_redis: Server, tmp_path: Path) -> None:
    seed = number("SEED", random.SystemRandom().randrange(10**6))
    print(f"\nAFTERTURN_TEST_SEED={seed} ({broker.kind}, {CHATS} chats x {TURNS} turns)")
    load = plan(seed, CHATS, TURNS, poison=max(9, CHATS * TURNS // 160))
    redis_url = valkey.url(own_redis)
    async with opened(broker.bootstrap, redis_url, tmp_path, seed, FULL) as run:
        await run.workers.ready()
        started = time.monotonic()
        await asyncio.gather(run.publish(load, SECONDS), killing(run, random.Random(seed)))
        published = time.monotonic()
        await run.drained(DRAIN_SECONDS)
        drained = time.monotonic()
        await run.stopped()
        wrong = await run.wrong(load)
        report = await run.audited()
        _print(run, load, (published - started, drained - published, time.monotonic() - started))
        assert wrong == [], "\n".join([f"{len(wrong)} findings", *wrong[:20]])
        assert report["ok"], report
        _check_calls(run)


def _check_calls(run: Run) -> None:
    """A kill repeats at most what was in flight in the killed worker."""
    kills = sum(kill.agent in ("summarise", "merge") for kill in run.workers.kills)
    assert run.repeated <= kills * IN_FLIGHT


def _print(run: Run, load: Load, seconds: tuple[float, float, float]) -> None:
    kills = [kill.agent for kill in run.workers.kills]
    recoveries = run.progress.recoveries(run.workers.kills)
    times = ", ".join(f"{value:.1f}" for value in recoveries) or "none"
    print(
        f"published {run.published}: "
        + ", ".join(f"{count} {kind}" for kind, count in sorted(load.kinds.items()))
    )
    print("taken back: " + ", ".join(f"{count} {kind}" for kind, count in load.taken_back.items()))
    commands = Counter(command["type"] for command in memories.once(run.good(COMMANDS)))
    there = [entry for mind in run.minds.values() for entry in mind.there().values()]
    print(
        f"commands on memories: {', '.join(f'{count} {type}' for type, count in sorted(commands.items()))}; "
        f"{len(there)} memories of {len(run.minds)} users, {sum(pinned for _, pinned, _ in there)} pinned, "
        f"{sum(mind.displaced for mind in run.minds.values())} displaced, "
        f"{sum(mind.struck for mind in run.minds.values())} writes taken back, "
        f"{sum(mind.overtaken for mind in run.minds.values())} times behind a later one that stays"
    )
    print(f"kills {len(kills)}: " + ", ".join(f"{kills.count(agent)} {agent}" for agent in FULL))
    print("published again after a kill: " + ", ".join(f"{n} {t}" for t, n in run.redelivered().items()))
    print(
        f"model: {run.model.calls.total()} calls for {run.calls.closed.total()} chunks closed and "
        f"{run.calls.saved.total()} merges saved, {run.repeated} repeated, "
        f"{run.model.dropped} cut off, at most {run.model.most} at a time"
    )
    if run.booked is not None:
        twice = run.booked.rows - run.booked.uses
        print(
            f"ClickHouse: {run.booked.uses} uses, {run.booked.credits} credits, {twice} rows inserted twice"
        )
    print(f"seconds from a kill until every partition of the group went on: {times}")
    print("seconds to publish {:.1f}, to drain {:.1f}, in all {:.1f}".format(*seconds))
