"""Waiting until the pipeline has handled all that was published."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from aiokafka.errors import KafkaError

from services.settings import Settings
from streams.pipeline import AGENTS, group
from streams.runtime.lag import Lag, open_lag
from streams.runtime.publisher import client_options

POLL = 0.2


async def lags(lag: Lag) -> dict[str, int]:
    """Records behind per agent, asked in the order of the flow: all zero means that nothing is under way."""
    return {agent: await lag.of(group(agent), topic) for agent, topic in AGENTS.items()}


async def drain(settings: Settings, deadline: float, report: Callable[[dict[str, int]], None]) -> bool:
    """Poll until all lags are zero, or for `deadline` seconds. `report` gets the lags; False where some are left."""
    until = time.monotonic() + deadline
    async with open_lag(client_options(settings)) as lag:
        while True:
            try:
                left = await lags(lag)
            except KafkaError as error:
                if time.monotonic() >= until:
                    raise
                left = {type(error).__name__: 1}
            report(left)
            if not any(left.values()):
                return True
            if time.monotonic() >= until:
                return False
            await asyncio.sleep(POLL)
