"""`afterturn audit`: checks what a stack has stored, while it runs or while it rests."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from redis.asyncio import Redis

from infra.stack import Stack
from services.audit.report import Read
from services.audit.service import audit
from services.credits.ledger import ClickHouseLedger
from services.settings import Settings
from streams import ledger as ledgers
from streams.cli import running
from streams.cli.asking import NO_BROKER, ask, service_token
from streams.cli.progress import Meter
from streams.cli.running import DataFolder
from streams.cli.start import SettingsFile, fail, load_settings, run

_SHOWN = 100


class Only(NamedTuple):
    """What is read: one chat, one user's saved memories, or (both None) everything."""

    chat: str | None = None
    user: str | None = None


Content = dict[str, Any]
"""services.audit.report.Report.as_dict, from here or from a gateway."""


def command(
    settings_file: SettingsFile = None,
    data: DataFolder = None,
    chat: Annotated[str | None, typer.Option(help="Only this chat.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's saved memories.")] = None,
    gateway: Annotated[
        str | None, typer.Option(help="Ask the gateway at this URL, e.g. that of an `afterturn up`.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Its service token; by default the first of AFTERTURN_SERVICE_TOKENS.")
    ] = None,
    at_rest: Annotated[
        bool, typer.Option("--at-rest", help="Nothing is under way: what is unfinished is an error.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Check that every message is in exactly one place, and that all that is derived fits together.

    Chunks and merges are contiguous, nothing is derived from what was taken back, saved memories keep to their limits and
    have an unbroken history, and uses are booked once.

    Reads the Redis and ClickHouse of the settings; with --data those of `afterturn up --data DIR`, which are started
    for the audit where that does not run. Ends with 1 where something is wrong.
    """
    settings = load_settings(settings_file)
    if data is not None and gateway is not None:
        fail("--data or --gateway, not both", 2)
    if at_rest and (data is not None or gateway is not None):
        fail("--at-rest is for the stores of the settings; --data knows whether its stack rests", 2)
    content = run(work(settings, data, Only(chat, user), gateway, token, at_rest))
    if as_json:
        typer.echo(json.dumps(content, ensure_ascii=False))
    else:
        for line in lines(content):
            typer.echo(line)
    if not content["ok"]:
        raise typer.Exit(1)


async def work(
    settings: Settings,
    data: Path | None,
    only: Only,
    gateway: str | None,
    token: str | None,
    at_rest: bool,
) -> Content:
    """The report. Raises what the stores raise, DataInUse and StartFailed."""
    if gateway is None and data is not None:
        address = running.find(data)
        if address is None:
            return await _resting(settings, data, only)
        gateway, token = address.gateway, token or address.token
    if gateway is not None:
        asked = {name: value for name, value in only._asdict().items() if value is not None}
        return await ask(gateway, "/v1/audit", token or service_token(settings), asked, "findings")
    return await _stores(settings, only, at_rest)


async def _resting(settings: Settings, data: Path, only: Only) -> Content:
    if not (data / "redis").is_dir():
        fail(f"{data} was not kept by `afterturn up --data`", 2)
    async with Stack(NO_BROKER, data) as stack:
        update = {"redis": stack.redis_url, "clickhouse": stack.clickhouse}
        return await _stores(settings.model_copy(update=update), only, at_rest=True, own=True)


async def _stores(settings: Settings, only: Only, at_rest: bool, own: bool = False) -> Content:
    """`own`: the ledger is this process's alone, so that its schema may be brought up to date."""
    async with AsyncExitStack() as opened:
        redis = Redis.from_url(settings.redis, socket_timeout=60, socket_connect_timeout=5)
        opened.push_async_callback(redis.aclose)
        connection = ledgers.connect(settings)
        opened.push_async_callback(connection.close)
        if own:
            await ledgers.migrate(connection)
        meter = opened.enter_context(Meter("auditing", "chats and users"))

        def show(read: Read) -> None:
            meter.show(read.chats + read.users)

        report = await audit(
            redis,
            ClickHouseLedger(connection),
            chat=only.chat,
            user=only.user,
            at_rest=at_rest,
            progress=show,
        )
    return report.as_dict()


def lines(content: Content) -> list[str]:
    """What was read, and what is wrong."""
    read = content["read"]
    state = "at rest" if content["at_rest"] else "running"
    shown = [
        f"read ({state}): " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in read.items())
    ]
    if not content["ledger"]:
        shown.append("the ledger was not read")
    for finding in content["findings"][:_SHOWN]:
        place = f"chat {finding['chat']}" if finding["chat"] else "ledger"
        if finding.get("user"):
            place = f"user {finding['user']}"
        shown.append(f"{finding['severity']:7} {finding['check']:10} {place}: {finding['detail']}")
    left = content["errors"] + content["warnings"] - min(_SHOWN, len(content["findings"]))
    if left > 0:
        shown.append(f"and {left} more (--json shows up to 1,000)")
    verdict = "sound" if content["ok"] else "WRONG"
    return [*shown, f"{verdict}: {content['errors']} errors, {content['warnings']} warnings"]
