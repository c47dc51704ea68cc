"""Plays the conversation as a frontend would, and collects what came of it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

import httpx

from schemas.chat import Level
from schemas.delivery import Topics
from schemas.turns import Envelope
from services.credits import prices
from services.settings import Settings
from streams.demo.conversation import CHAT, turns
from streams.demo.follow import Follower
from streams.demo.second_thoughts import play as play_second_thoughts
from streams.demo.second_thoughts import record
from streams.drain import drain
from streams.pipeline import AGENTS
from streams.together import Report, Running, run_together

BURST = 5
"""Turns that are published together: many times what a person types, few enough to watch."""

CHUNK_MESSAGES = 12
"""Messages of a chunk in the demo: with the default of 10 its conversation happens to end right after a merge into
the long-term memory, and the tier in the middle would be empty."""

PATIENCE = 120.0
"""Seconds without any agent getting further: then the demo gives up. A model may take its time for each chunk."""


class Unfinished(RuntimeError):
    """The agents did not finish in time, or an agent failed."""


async def play(
    settings: Settings, broker: str, report: Report, say: Callable[[str, str], None]
) -> dict[str, Any]:
    """Everything the demo shows, as one JSON object. Raises Unfinished, and what starting the stack raises."""
    ours = settings.model_copy(update={"gateway_port": 0, "chunk_messages": CHUNK_MESSAGES})
    async with run_together(ours, broker, None, report) as running:
        await running.worker.joined()
        follower = Follower(running.settings, prices.load(settings.prices), say)
        await follower.start()
        try:
            return await _play(running, follower, say)
        finally:
            await follower.stop()


async def _play(running: Running, follower: Follower, say: Callable[[str, str], None]) -> dict[str, Any]:
    started = time.monotonic()
    events = list(turns())
    say("frontend", f"publishes {len(events)} turns to {Topics.TURNS}")
    for at in range(0, len(events), BURST):
        await running.resources.publisher.publish([record(event) for event in events[at : at + BURST]])
        await asyncio.sleep(0)
    say("frontend", "has published all of them; no reply waited for any of what follows")
    booked = _booked(running, say)
    await finished(running, booked)
    seconds = time.monotonic() - started

    async def publish(event: Envelope) -> None:
        await running.resources.publisher.publish([record(event)])
        await finished(running, booked)

    async with httpx.AsyncClient(base_url=running.url, timeout=30) as http:
        http.headers["Authorization"] = f"Bearer {running.token or _first_token(running.settings)}"
        second_thoughts = await play_second_thoughts(http, events, publish, say)
        await follower.caught_up(lambda: asyncio.sleep(0.05))
        memory = (await http.get(f"/v1/chats/{CHAT}/memory")).raise_for_status().json()
        asked = time.monotonic()
        context = (await http.get(f"/v1/chats/{CHAT}/context")).raise_for_status().json()
        milliseconds = (time.monotonic() - asked) * 1000
    spend = await running.ledger.spend_by_stage()
    totals = await running.ledger.totals()
    state = await running.resources.redis.hget(f"{{c:{CHAT}}}:w", "tn")
    tiers = {tier["tier"]: tier for tier in memory["tiers"]}
    return {
        # the turn that is regenerated in the end comes on top of the conversation
        "turns": {"sent": len(events) + 1, "applied": int(state or 0)},
        "live": {"messages": memory["live"]["count"], "tokens": memory["live"]["tokens"]},
        "pending": {"messages": memory["pending"]["count"], "tokens": memory["pending"]["tokens"]},
        "summaries": {name: len(tier["summaries"]) for name, tier in tiers.items()},
        "summarised_share": memory["summarised"]["share"],
        "rules_kept": _rules(memory),
        "usage": {"sent": len(follower.usage), "booked": totals.uses},
        "credits": {"sent": str(sum(follower.usage.values())), "clickhouse": str(totals.credits)},
        "spend": {
            stage: {
                "uses": s.uses,
                "tokens_in": s.tokens_in,
                "tokens_out": s.tokens_out,
                "credits": str(s.credits),
            }
            for stage, s in spend.items()
        },
        "level": memory["bounds"]["level"] if "bounds" in memory else Level.balanced,
        **second_thoughts,
        "context": context,
        "context_milliseconds": round(milliseconds, 1),
        "seconds": round(seconds, 2),
    }


async def finished(running: Running, booked: Callable[[dict[str, int]], None]) -> None:
    """Until nothing is under way. Raises Unfinished."""
    left: dict[str, int] = {}

    def report(lags: dict[str, int]) -> None:
        left.update(lags)
        booked(lags)

    before: dict[str, int] | None = None
    while not await drain(running.settings, PATIENCE, report):
        if left == before:
            behind = ", ".join(f"{agent} {count}" for agent, count in left.items() if count)
            raise Unfinished(f"nothing got further for {PATIENCE:.0f} s; records left: {behind}")
        before = dict(left)


def _booked(running: Running, say: Callable[[str, str], None]) -> Callable[[dict[str, int]], None]:
    """Says how many uses the credits agent has booked, as often as it has booked more."""
    metrics = running.worker.agents[list(AGENTS).index("credits")].metrics
    shown = 0

    def progress(_: dict[str, int]) -> None:
        nonlocal shown
        done = int(metrics.registry.get_sample_value("afterturn_done_total", {"agent": metrics.agent}) or 0)
        if done > shown:
            shown = done
            say("credits", f"{done} uses booked in ClickHouse")

    return progress


def _first_token(settings: Settings) -> str:
    return settings.service_tokens[0].get_secret_value()


def _rules(memory: dict[str, Any]) -> list[str]:
    return [
        rule["quote"]
        for tier in memory["tiers"]
        for summary in tier["summaries"]
        for rule in summary["body"]["rules"]
    ]


def as_json(result: dict[str, Any]) -> str:
    """The result for scripts."""
    return json.dumps(result, ensure_ascii=False)
