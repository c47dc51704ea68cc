"""`afterturn migrate`: brings ClickHouse's schema up to date."""

from __future__ import annotations

import typer

from services.settings import Settings
from streams import ledger
from streams.cli.start import SettingsFile, load_settings, run


def command(settings_file: SettingsFile = None) -> None:
    """Apply the migrations that ClickHouse has not had yet."""
    applied = run(work(load_settings(settings_file)))
    typer.echo("\n".join(f"applied {name}" for name in applied) or "up to date")


async def work(settings: Settings) -> tuple[str, ...]:
    """Names of what was applied. Raises MigrationError, Transient, Fatal."""
    connection = ledger.connect(settings)
    try:
        return await ledger.migrate(connection)
    finally:
        await connection.close()
