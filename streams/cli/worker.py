"""`afterturn worker NAME`: one agent, in a process of its own; start as many as the topic has partitions."""

from __future__ import annotations

import logging
import os
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Annotated

import typer

from services.settings import Settings
from streams.cli.start import SettingsFile, entered, load_settings, run
from streams.pipeline import AGENTS, open_agents
from streams.resources import open_resources
from streams.runtime.worker import Worker, stop_on_signals

log = logging.getLogger(__name__)

_COMPUTES = ("summarise", "merge")
"""Agents that take their processor time from requests, where the summariser computes in the process."""

AgentName = StrEnum("AgentName", {name: name for name in AGENTS})  # type: ignore[misc]


def command(
    name: Annotated[AgentName, typer.Argument(help="The agent.")],
    settings_file: SettingsFile = None,
    health_port: Annotated[
        int | None, typer.Option(help="Port of /healthz and /metrics; 0 takes a free one.")
    ] = None,
) -> None:
    """Run one agent until SIGTERM."""
    settings = load_settings(settings_file, health_port=health_port)
    if idle(name.value, settings):
        _give_way()
    run(work(name.value, settings))


def idle(name: str, settings: Settings) -> bool:
    """Whether the agent's process takes only time that nobody else wants: where it computes what nobody waits for."""
    return (
        name in _COMPUTES and settings.summary_model == "extractive" and settings.summary_priority == "idle"
    )


def _give_way() -> None:
    """To be called before any thread is started: they inherit it."""
    if hasattr(os, "SCHED_IDLE"):
        # niceness only shares time out: a request that wakes up would still wait for the end of a slice
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    else:
        os.nice(19)


async def work(name: str, settings: Settings) -> None:
    """Start, announce the health port in the log, wait for the end. Raises Fatal, Transient."""
    stop = stop_on_signals()
    async with AsyncExitStack() as opened:
        resources = await entered(opened, open_resources(settings), stop)
        if resources is None:
            return
        specs = await opened.enter_async_context(open_agents((name,), resources))
        worker = Worker(specs, settings, resources.publisher)
        try:
            await worker.start()
            log.info(
                "started", extra={"agent": name, "health": f"http://{settings.host}:{worker.health.port}"}
            )
            await worker.wait(stop)
        finally:
            await worker.stop()
    log.info("stopped", extra={"agent": name})
