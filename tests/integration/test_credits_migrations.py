"""Migrations on the real engine: recorded, applied once, and safe to break off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.clickhouse import folder
from services.credits.clickhouse import Connection
from services.credits.migrations import MigrationError, load, migrate
from services.failures import Fatal


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    connection = Connection(f"chdb:{tmp_path}/ledger")
    yield connection
    await connection.close()


async def test_all_are_applied_once_and_recorded(connection: Connection) -> None:
    migrations = load(folder())
    assert await migrate(connection, migrations) == migrations
    assert await migrate(connection, migrations) == ()
    recorded = await connection.rows("SELECT number, name, checksum FROM schema_migrations ORDER BY number")
    assert recorded == [(m.number, m.name, m.checksum) for m in migrations]


async def test_a_changed_migration_stops_before_anything_is_applied(connection: Connection) -> None:
    first, *others = load(folder())
    await migrate(connection, [first])
    changed = first._replace(checksum="0" * 64)
    with pytest.raises(MigrationError, match="was changed"):
        await migrate(connection, [changed, *others])
    assert await connection.rows("SELECT count() FROM schema_migrations") == [(1,)]


async def test_a_migration_that_broke_off_runs_again_as_a_whole(connection: Connection) -> None:
    first, *others = load(folder())
    broken = first._replace(statements=(first.statements[0], "CREATE TABLE no sense"))
    with pytest.raises(Fatal):
        await migrate(connection, [broken])
    assert await connection.rows("SELECT count() FROM schema_migrations") == [(0,)]
    assert await migrate(connection, [first, *others]) == (first, *others)


async def test_two_that_ran_at_once_count_as_one(connection: Connection) -> None:
    migrations = load(folder())
    await migrate(connection, migrations)
    await connection.command("INSERT INTO schema_migrations SELECT * FROM schema_migrations")
    assert await migrate(connection, migrations) == ()
