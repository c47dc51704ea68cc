"""Numbered SQL as code: applied in order, recorded with a checksum, never changed afterwards.

| the process dies | what follows |
|---|---|
| between two statements of a file | the file is not recorded; it runs again as a whole, its statements allow that |
| after the statements, before the record | the same |
| two of them run at once | both apply the same statements; the record is there twice, which counts as once |

Shown by tests/integration/test_credits_migrations.py.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from importlib.resources.abc import Traversable
from typing import NamedTuple

from services.credits.clickhouse import Connection

_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")

_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations
(number UInt32, name String, checksum String, applied_at DateTime64(3, 'UTC') DEFAULT now64(3))
ENGINE = MergeTree ORDER BY number
COMMENT 'Migrations that were applied, with the SHA-256 of their text'
"""


class MigrationError(Exception):
    """The files do not fit together, or do not fit what was applied; the message names the file."""


class Migration(NamedTuple):
    """One file. `checksum` is the SHA-256 of its bytes, in hexadecimal."""

    number: int
    name: str
    statements: tuple[str, ...]
    checksum: str


def load(folder: Traversable) -> tuple[Migration, ...]:
    """All `NNNN_name.sql` of a folder in order. Raises MigrationError on a gap or a number used twice."""
    found = []
    for file in folder.iterdir():
        if not file.name.endswith(".sql"):
            continue
        match = _NAME.fullmatch(file.name)
        if not match:
            raise MigrationError(f"{file.name}: is not named NNNN_name.sql")
        content = file.read_bytes()
        checksum = hashlib.sha256(content).hexdigest()
        found.append(Migration(int(match[1]), file.name, split(content.decode()), checksum))
    found.sort()
    for expected, migration in enumerate(found, start=1):
        if migration.number != expected:
            raise MigrationError(f"{migration.name}: expected number {expected:04}")
    return tuple(found)


def split(sql: str) -> tuple[str, ...]:
    """Statements of a file: each ends with a semicolon at the end of a line; whole-line comments are dropped."""
    lines = [line for line in sql.splitlines() if not line.lstrip().startswith("--")]
    parts = re.split(r";[ \t]*(?:\n|$)", "\n".join(lines))
    return tuple(part.strip() for part in parts if part.strip())


def outstanding(
    migrations: Sequence[Migration], applied: Sequence[tuple[int, str, str]]
) -> tuple[Migration, ...]:
    """What is left to apply. `applied` is (number, name, checksum) as recorded.

    Raises MigrationError where an applied file has changed, is missing, or was overtaken by a later number.
    """
    known = {migration.number: migration for migration in migrations}
    for number, name, checksum in applied:
        migration = known.get(number)
        if migration is None:
            raise MigrationError(f"{name}: was applied, but this version does not have it")
        if migration.checksum != checksum:
            raise MigrationError(
                f"{migration.name}: was changed after it had been applied; a new number is needed"
            )
    numbers = {number for number, _, _ in applied}
    left = tuple(migration for migration in migrations if migration.number not in numbers)
    if left and numbers and left[0].number < max(numbers):
        raise MigrationError(f"{left[0].name}: was not applied, but a later one was")
    return left


async def migrate(connection: Connection, migrations: Sequence[Migration]) -> tuple[Migration, ...]:
    """Bring the database up to date, making it first where it is missing; returns what was applied now."""
    await connection.create_database()
    await connection.command(_TABLE)
    recorded = await connection.rows(
        "SELECT DISTINCT number, name, checksum FROM schema_migrations ORDER BY number"
    )
    left = outstanding(migrations, [(number, name, checksum) for number, name, checksum in recorded])
    for migration in left:
        for statement in migration.statements:
            await connection.command(statement)
        await connection.insert(
            "schema_migrations",
            {
                "number": ("UInt32", [migration.number]),
                "name": ("String", [migration.name]),
                "checksum": ("String", [migration.checksum]),
            },
            {},
        )
    return left
