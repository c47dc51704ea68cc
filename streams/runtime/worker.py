"""One process with one or several agents: start, wait for a signal or a failure, stop in order."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Sequence
from typing import Any

from services.failures import Fatal
from services.metrics import Metrics
from services.settings import Settings
from streams.runtime.agent import Agent, AgentSpec
from streams.runtime.handling import Publishes, where
from streams.runtime.health import Health
from streams.runtime.heap import settle

log = logging.getLogger(__name__)


class Worker:
    """Agents and their health port."""

    def __init__(
        self, specs: Sequence[tuple[AgentSpec, Metrics]], settings: Settings, publisher: Publishes
    ) -> None:
        self._settings = settings
        self.agents = [Agent(spec, settings, publisher, metrics) for spec, metrics in specs]
        self.health = Health(self.agents)

    async def start(self) -> None:
        """Listen, join the groups. Raises OSError where the health port is taken."""
        await self.health.start(self._settings.host, self._settings.health_port)
        await asyncio.gather(*(agent.start() for agent in self.agents))
        settle()

    async def stop(self) -> None:
        """Stop fetching, finish or cancel what is in flight within the deadline, commit, leave, stop listening."""
        await asyncio.gather(*(agent.stop() for agent in self.agents))
        await self.health.stop()

    async def joined(self) -> None:
        """Until every agent has had its first assignment, or one has failed."""
        for agent in self.agents:
            joined = asyncio.ensure_future(agent.joined.wait())
            ends: set[asyncio.Future[Any]] = {joined, agent.failed}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            joined.cancel()

    async def wait(self, stop: asyncio.Event) -> None:
        """Until `stop` is set or an agent fails. Raises Fatal then, with the reason."""
        stopping = asyncio.ensure_future(stop.wait())
        ends: set[asyncio.Future[Any]] = {stopping, *(agent.failed for agent in self.agents)}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
        for agent in self.agents:
            if agent.failed.done():
                error = agent.failed.result()
                reason = str(error) if isinstance(error, Fatal) else where(error)
                raise Fatal(f"{agent.spec.name}: {reason}") from error


def stop_on_signals() -> asyncio.Event:
    """An event that SIGTERM and SIGINT set. A second SIGINT interrupts as usual."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def ask() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ask)
    return stop
