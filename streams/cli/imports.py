"""`afterturn import FILE`: an existing history becomes turn events. Stopped and run again, it goes on where it was."""

from __future__ import annotations

import asyncio
import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from infra import topics
from schemas.delivery import Topics
from services.imports.checkpoint import Checkpoint
from services.imports.port import ImportRefused, Options
from services.imports.service import SHOWN, Progress, Report
from services.imports.service import run as import_file
from services.settings import Settings
from streams.cli.progress import Meter
from streams.cli.running import DataFolder, on_running
from streams.cli.start import SettingsFile, fail, load_settings, run
from streams.runtime.publisher import Publisher, client_options
from streams.runtime.worker import stop_on_signals

INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM, as shells have it."""


def command(
    file: Annotated[Path, typer.Argument(help="The export.", exists=True, dir_okay=False, readable=True)],
    settings_file: SettingsFile = None,
    data: DataFolder = None,
    chat: Annotated[
        str | None, typer.Option(help="Id of the chat, instead of a derived one; for an export of one chat.")
    ] = None,
    me: Annotated[
        list[str] | None,
        typer.Option(help="Name or id of who is the user, where the export does not tell; may be repeated."),
    ] = None,
    user: Annotated[
        str | None, typer.Option(help="Id of the user in the events; without it nobody is signed in.")
    ] = None,
) -> None:
    """Turn an existing history into turn events.

    Understands SillyTavern chats (.jsonl), ChatGPT's conversations.json, Telegram's result.json, DiscordChatExporter's
    JSON, and JSONL of {role, content}, told apart by their content. Stopped and run again, it goes on where it was.
    Ends with 0 where anything could be used, else with 1.
    """
    settings = on_running(load_settings(settings_file), data)
    options = Options(me=tuple(me or ()), user=user, chat=chat)
    try:
        report = run(work(settings, file, options, (data or _cache()) / "imports"))
    except ImportRefused as error:
        fail(f"{file}: {error}", 2)
    if report is None:
        again = shlex.join(["afterturn", *sys.argv[1:]])
        typer.echo(f"stopped; what was confirmed is kept, and this goes on from there:\n  {again}", err=True)
        raise typer.Exit(INTERRUPTED)
    for line in summary(report):
        typer.echo(line)
    if not report.turns and not report.already:
        raise typer.Exit(1)


async def work(settings: Settings, file: Path, options: Options, checkpoints: Path) -> Report | None:
    """Import; None where it was asked to stop. Raises ImportRefused, Transient, OSError."""
    stop = stop_on_signals()
    connection = client_options(settings)
    epochs = await topics.read_epochs(connection.pop("bootstrap_servers"), **connection)
    if Topics.TURNS not in epochs:
        fail(f"{settings.kafka} has no topic {Topics.TURNS}: run `afterturn topics apply`")
    checkpoint = Checkpoint.of(checkpoints, file, epochs[Topics.TURNS], options.chat)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        with Meter(f"importing {file.name}", "turns") as meter:

            def show(at: Progress) -> None:
                meter.show(at.turns, at.read / at.size if at.size else None)

            task = asyncio.create_task(
                import_file(file, publisher.publish, options, checkpoint=checkpoint, progress=show)
            )
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({task, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not task.done():
                task.cancel()
                await asyncio.wait({task})
            return None if task.cancelled() else task.result()
    finally:
        await publisher.stop()


def summary(report: Report) -> list[str]:
    """What came of it, and what could not be used: places and reasons, never a text."""
    lines = [
        f"format {report.format}: {report.chats} chats, {report.turns} turns, {report.messages} messages published"
    ]
    lines += [f"  chat {id}" for id in report.ids]
    if report.chats > len(report.ids):
        lines.append(f"  and {report.chats - len(report.ids)} more chats")
    if report.already:
        lines.append(f"{report.already} messages were imported by an earlier run")
    count = sum(report.reasons.values())
    if count:
        lines.append(f"{count} could not be used:")
        lines += [f"  {found.place}: {found.reason}" for found in report.first]
        if count > len(report.first):
            lines.append(f"  and {count - len(report.first)} more; of all {count}:")
            lines += [f"  {number} x {reason}" for reason, number in report.reasons.most_common(SHOWN)]
    return lines


def _cache() -> Path:
    """Where the marks of imports are kept without --data. Losing them costs time, not correctness."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "afterturn"
