"""`afterturn up`: all agents and the gateway in one process, with broker, Redis and ClickHouse of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from services.gateway.server import listen
from services.settings import Settings
from streams.cli.start import SettingsFile, fail, load_settings, run
from streams.drain import drain
from streams.runtime.worker import stop_on_signals
from streams.together import run_together


def command(
    settings_file: SettingsFile = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder to keep Redis and ClickHouse in; without it nothing is kept.")
    ] = None,
    broker: Annotated[
        str, typer.Option(help="embedded, apache, or HOST:PORT of one that runs.")
    ] = "embedded",
    port: Annotated[int | None, typer.Option(help="Port of the gateway; 0 takes a free one.")] = None,
    drain_deadline: Annotated[
        float, typer.Option(help="Seconds to finish what was published, before the stop.")
    ] = 60.0,
) -> None:
    """Run everything until SIGTERM or Ctrl-C."""
    settings = load_settings(settings_file, gateway_port=port)
    for name, number in (("gateway_port", settings.gateway_port), ("health_port", settings.health_port)):
        _check_free(name, settings.host, number)
    run(work(settings, data, broker, drain_deadline))


def _check_free(name: str, host: str, port: int) -> None:
    """Ends the command where somebody listens there: told before the servers have been started for nothing."""
    try:
        listen(host, port).close()
    except OSError as error:
        fail(f"AFTERTURN_{name.upper()}: {host}:{port} cannot be listened on: {error.strerror}", 2)


async def work(settings: Settings, data: Path | None, broker: str, drain_deadline: float) -> None:
    """Start, say where it listens, wait for the end, drain, stop."""
    stop = stop_on_signals()
    async with run_together(settings, broker, data, report=_say) as running:
        await running.worker.joined()
        _say(f"kafka    {running.settings.kafka}")
        _say(f"redis    {running.settings.redis}")
        _say(f"gateway  {running.url}")
        _say(f"health   http://{running.settings.host}:{running.worker.health.port}")
        if running.token is not None:
            _say(f"token    {running.token}")
        _say("ready; Ctrl-C stops")
        await running.worker.wait(stop)
        await running.gateway.stop()
        _say("finishing what was published")
        shown: dict[str, int] = {}

        def progress(left: dict[str, int]) -> None:
            if left != shown:
                shown.update(left)
                _say("  left: " + ", ".join(f"{agent} {count}" for agent, count in left.items()))

        if not await drain(running.settings, drain_deadline, progress):
            _say("the deadline has passed; what is left is kept only where the broker keeps its log")
    _say("stopped")


def _say(line: str) -> None:
    typer.echo(line)
