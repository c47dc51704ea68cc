"""The credits agent and its ClickHouse; apart from the other agents, which start without a client of it (12 MiB)."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

from schemas.delivery import Topics
from services.credits import migrations, prices
from services.credits.clickhouse import Connection
from services.credits.ledger import ClickHouseLedger, Ledger
from services.settings import Settings
from streams.credits import Credits
from streams.runtime.agent import AgentSpec, Batched
from streams.runtime.coalesce import Coalesce

MIGRATIONS = Path(__file__).parent.parent / "infra" / "clickhouse"


def connect(settings: Settings) -> Connection:
    """ClickHouse; opened at the first use."""
    return Connection(settings.clickhouse)


async def migrate(connection: Connection) -> tuple[str, ...]:
    """Bring ClickHouse's schema up to date. Names of the migrations that were applied now."""
    return tuple(done.name for done in await migrations.migrate(connection, migrations.load(MIGRATIONS)))


def agent(settings: Settings, ledger: Ledger | None, opened: AsyncExitStack) -> AgentSpec:
    """The credits agent on `ledger`, or on one of its own that `opened` closes."""
    if ledger is None:
        connection = connect(settings)
        opened.push_async_callback(connection.close)
        ledger = ClickHouseLedger(connection)
    rows = settings.ledger_rows
    handle = Coalesce(Credits(ledger, prices.load(settings.prices)).handle, rows, settings.ledger_delay)
    return AgentSpec("credits", Topics.USAGE, Batched(handle, rows, buffer=rows))
