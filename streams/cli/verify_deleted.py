"""`afterturn verify-deleted CHAT`: searches every store for a deleted chat, and proves that it is gone."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any

import typer
from redis.asyncio import Redis

from infra.stack import APACHE, Stack
from services.audit.deleted import verify
from services.credits.ledger import ClickHouseLedger
from services.settings import Settings
from streams import ledger as ledgers
from streams.chat_search import ChatSearch
from streams.cli import running
from streams.cli.asking import NO_BROKER, ask, service_token
from streams.cli.progress import Meter
from streams.cli.running import DataFolder
from streams.cli.start import SettingsFile, fail, load_settings, run

Content = dict[str, Any]
"""services.audit.deleted.Verdict.as_dict, from here or from a gateway."""


def command(
    chat: Annotated[str, typer.Argument(help="Id of the deleted chat.")],
    settings_file: SettingsFile = None,
    data: DataFolder = None,
    gateway: Annotated[
        str | None, typer.Option(help="Ask the gateway at this URL, e.g. that of an `afterturn up`.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Its service token; by default the first of AFTERTURN_SERVICE_TOKENS.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Search Redis, ClickHouse and the log for a deleted chat, and prove that it is gone.

    Tells what was searched, what is kept by rule, and what is left. Reads the stores of the settings; with --data those of
    `afterturn up --data DIR`, which are started where that does not run. Ends with 1 where something is left.
    """
    settings = load_settings(settings_file)
    if data is not None and gateway is not None:
        fail("--data or --gateway, not both", 2)
    content = run(work(settings, data, chat, gateway, token))
    if as_json:
        typer.echo(json.dumps(content, ensure_ascii=False))
    else:
        for line in lines(content):
            typer.echo(line)
    if not content["ok"]:
        raise typer.Exit(1)


async def work(
    settings: Settings, data: Path | None, chat: str, gateway: str | None, token: str | None
) -> Content:
    """What was found. Raises what the stores raise, DataInUse and StartFailed."""
    if gateway is None and data is not None:
        address = running.find(data)
        if address is None:
            return await _resting(settings, data, chat)
        gateway, token = address.gateway, token or address.token
    if gateway is not None:
        return await ask(
            gateway, "/v1/audit/deleted", token or service_token(settings), {"chat": chat}, "searched"
        )
    return await _stores(settings, chat, log=True)


async def _resting(settings: Settings, data: Path, chat: str) -> Content:
    if not (data / "redis").is_dir():
        fail(f"{data} was not kept by `afterturn up --data`", 2)
    kept = (data / "kafka").is_dir()
    async with Stack(APACHE if kept else NO_BROKER, data) as stack:
        update = {"kafka": stack.bootstrap, "redis": stack.redis_url, "clickhouse": stack.clickhouse}
        return await _stores(settings.model_copy(update=update), chat, log=kept, own=True)


async def _stores(settings: Settings, chat: str, *, log: bool, own: bool = False) -> Content:
    """`own`: the ledger is this process's alone, so that its schema may be brought up to date."""
    async with AsyncExitStack() as opened:
        redis = Redis.from_url(settings.redis, socket_timeout=60, socket_connect_timeout=5)
        opened.push_async_callback(redis.aclose)
        connection = ledgers.connect(settings)
        opened.push_async_callback(connection.close)
        if own:
            await ledgers.migrate(connection)
        meter = opened.enter_context(Meter("searching", "keys and records"))
        search = ChatSearch(settings) if log else None
        verdict = await verify(redis, ClickHouseLedger(connection), search, chat, meter.show)
    return verdict.as_dict()


def lines(content: Content) -> list[str]:
    """What was searched, kept and found."""
    shown = [f"searched {each['store']}: {each['number']:,} {each['what']}" for each in content["searched"]]
    shown += [f"kept     {each['store']}: {each['detail']}" for each in content["kept"]]
    shown += [f"LEFT     {each['store']}: {each['detail']}" for each in content["left"]]
    left = len(content["left"])
    return [*shown, f"chat {content['chat']}: {'gone' if content['ok'] else f'NOT GONE, {left} places'}"]
