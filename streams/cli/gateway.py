"""`afterturn gateway`: HTTP for frontends without a Kafka client, and the context of the next reply."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Annotated

import typer

from services.gateway import auth
from services.settings import Settings
from streams.cli.start import SettingsFile, entered, load_settings, run
from streams.resources import open_resources
from streams.runtime.heap import settle
from streams.runtime.worker import stop_on_signals
from streams.together import serve_gateway

log = logging.getLogger(__name__)


def command(
    settings_file: SettingsFile = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on; 0 takes a free one.")] = None,
) -> None:
    """Run the gateway until SIGTERM."""
    run(work(load_settings(settings_file, gateway_port=port)))


async def work(settings: Settings) -> None:
    """Listen until asked to stop. Raises ValueError where it would be open to a network without a token, OSError."""
    stop = stop_on_signals()
    # a gateway that nobody could use is told before anything is waited for
    auth.from_settings(settings)
    async with AsyncExitStack() as opened:
        resources = await entered(opened, open_resources(settings), stop)
        if resources is None:
            return
        gateway, token = await serve_gateway(resources)
        settle()
        log.info("started", extra={"gateway": f"http://{gateway.host}:{gateway.port}"})
        if token is not None:
            typer.echo(f"No token is configured; for this run: {token}")
        ended = asyncio.ensure_future(gateway.wait())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({ended, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await gateway.stop()
        stopping.cancel()
    log.info("stopped", extra={"gateway": True})
