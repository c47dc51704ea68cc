"""The agents by name: what each is made of."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from schemas.delivery import Topics
from services.memories.service import Memories
from services.metrics import Metrics
from services.summaries.metering import metered
from services.summaries.service import Summaries
from services.window.service import Window
from services.window.store import ChunkSize
from streams import memories, merge, summarise, window
from streams.recovery import announce_again, announce_changes_again
from streams.resources import Resources, summariser
from streams.runtime.agent import AgentSpec, Keyed

if TYPE_CHECKING:
    from services.credits.ledger import Ledger

AGENTS: dict[str, str] = {
    "window": Topics.TURNS,
    "summarise": Topics.CHUNKS,
    "merge": Topics.SUMMARIES,
    "memories": Topics.MEMORY_COMMANDS,
    "credits": Topics.USAGE,
}
"""Agents and the topic that each consumes, in the order of the flow."""


def group(agent: str) -> str:
    """The consumer group of an agent."""
    return f"afterturn-{agent}"


@asynccontextmanager
async def open_agents(
    names: tuple[str, ...], resources: Resources, ledger: Ledger | None = None
) -> AsyncIterator[list[tuple[AgentSpec, Metrics]]]:
    """Specs of these agents, and what they alone need. `ledger` is one that is open already; its schema is up to date."""
    async with AsyncExitStack() as opened:
        if "window" in names:
            await announce_again(resources)
        if "memories" in names:
            await announce_changes_again(resources)
        specs = []
        first = Metrics(names[0])
        for name in names:
            metrics = first.beside(name)
            specs.append((await _spec(name, resources, metrics, ledger, opened), metrics))
        yield specs


async def _spec(
    name: str, resources: Resources, metrics: Metrics, ledger: Ledger | None, opened: AsyncExitStack
) -> AgentSpec:
    settings = resources.settings
    topic = AGENTS[name]
    if name == "window":
        size = ChunkSize(settings.chunk_messages, settings.chunk_tokens)

        async def partition_of(chat: str) -> int:
            return await resources.publisher.partition(topic, chat.encode())

        service = Window(resources.redis, resources.counter, size, partition_of=partition_of)
        return window.agent(service, resources.redis, resources.epochs[topic], settings.batch)
    if name == "memories":
        writer = Memories(resources.redis, resources.counter, clock=lambda: datetime.now(UTC))
        return memories.agent(writer, resources.epochs[topic], settings.batch)
    if name == "credits":
        # imported where it is used: the other agents do without the ClickHouse client
        from streams import ledger as credits_ledger

        return credits_ledger.agent(settings, ledger, opened)
    model = summariser(settings, resources.counter)
    opened.push_async_callback(model.close)
    summaries = Summaries(
        resources.redis, model, resources.counter, clock=lambda: datetime.now(UTC), observe=metered(metrics)
    )
    build = summarise.build if name == "summarise" else merge.build
    return AgentSpec(name, topic, Keyed(build(summaries)))
