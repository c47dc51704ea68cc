"""What `afterturn audit` and `afterturn verify-deleted` look at: the stores of the settings, those that a stack left in
its folder, or, where a stack has them to itself, its gateway."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from redis.asyncio import Redis

from infra.stack import Stack
from services.credits.ledger import ClickHouseLedger
from services.settings import Settings
from streams import ledger as ledgers
from streams.cli import running
from streams.cli.asking import service_token
from streams.cli.start import fail

Content = dict[str, Any]
"""A report as a dictionary, from here or from a gateway. `ok` tells whether all is well."""

GatewayUrl = Annotated[
    str | None, typer.Option(help="Ask the gateway at this URL, e.g. that of an `afterturn up`.")
]
Token = Annotated[
    str | None, typer.Option(help="Its service token; by default the first of AFTERTURN_SERVICE_TOKENS.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


class Whose(NamedTuple):
    """The options: at most one of `data` and `gateway`."""

    data: Path | None
    gateway: str | None
    token: str | None

    @property
    def settings_alone(self) -> bool:
        """Whether the stores are those of the settings."""
        return self.data is None and self.gateway is None

    def checked(self) -> Whose:
        """Ends the command where both are given."""
        if self.data is not None and self.gateway is not None:
            fail("--data or --gateway, not both", 2)
        return self

    def to_ask(self, settings: Settings) -> tuple[str, str] | None:
        """URL and token of the gateway that has the stores open; None where they are free."""
        gateway, token = self.gateway, self.token
        if self.data is not None:
            address = running.find(self.data)
            if address is None:
                return None
            gateway, token = address.gateway, token or address.token
        return None if gateway is None else (gateway, token or service_token(settings))


class Stores(NamedTuple):
    """Connected."""

    redis: Redis
    ledger: ClickHouseLedger


@asynccontextmanager
async def open_stores(settings: Settings, *, own: bool = False) -> AsyncIterator[Stores]:
    """`own`: the ledger is this process's alone, so that its schema may be brought up to date."""
    async with AsyncExitStack() as opened:
        redis = Redis.from_url(settings.redis, socket_timeout=60, socket_connect_timeout=5)
        opened.push_async_callback(redis.aclose)
        connection = ledgers.connect(settings)
        opened.push_async_callback(connection.close)
        if own:
            await ledgers.migrate(connection)
        yield Stores(redis, ClickHouseLedger(connection))


@asynccontextmanager
async def start_stores(settings: Settings, data: Path, broker: str) -> AsyncIterator[Settings]:
    """The settings of a stack that rests in this folder, while what it kept runs. Raises DataInUse and StartFailed."""
    if not (data / "redis").is_dir():
        fail(f"{data} was not kept by `afterturn up --data`", 2)
    async with Stack(broker, data) as stack:
        update = {"kafka": stack.bootstrap, "redis": stack.redis_url, "clickhouse": stack.clickhouse}
        yield settings.model_copy(update=update)


def tell(content: Content, lines: Callable[[Content], Sequence[str]], as_json: bool) -> None:
    """Print a report. Ends with 1 where it is not well."""
    if as_json:
        typer.echo(json.dumps(content, ensure_ascii=False))
    else:
        for line in lines(content):
            typer.echo(line)
    if not content["ok"]:
        raise typer.Exit(1)
