"""Which migrations are left, and which states are refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from infra.clickhouse import folder
from services.credits.clickhouse import Address, AddressError
from services.credits.migrations import MigrationError, load, outstanding, split


def write(directory: Path, *names: str) -> Path:
    for name in names:
        (directory / name).write_text(f"CREATE TABLE IF NOT EXISTS t{name[:4]} (a Int8) ENGINE = Memory;\n")
    return directory


def test_files_are_read_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    write(tmp_path, "0002_b.sql", "0001_a.sql", "0003_c.sql")
    (tmp_path / "README.md").write_text("not a migration")
    assert [migration.name for migration in load(tmp_path)] == ["0001_a.sql", "0002_b.sql", "0003_c.sql"]


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (("0001_a.sql", "0003_c.sql"), "0003_c.sql: expected number 0002"),
        (("0001_a.sql", "0001_b.sql"), "0001_b.sql: expected number 0002"),
        (("1_a.sql",), "1_a.sql: is not named"),
    ],
)
def test_gaps_and_wrong_names_are_refused(tmp_path: Path, names: tuple[str, ...], named: str) -> None:
    with pytest.raises(MigrationError, match=re.escape(named)):
        load(write(tmp_path, *names))


def test_only_what_was_not_applied_is_left(tmp_path: Path) -> None:
    first, second = load(write(tmp_path, "0001_a.sql", "0002_b.sql"))
    assert outstanding((first, second), []) == (first, second)
    assert outstanding((first, second), [(1, first.name, first.checksum)]) == (second,)


@pytest.mark.parametrize(
    ("applied", "named"),
    [
        ([(1, "0001_a.sql", "0" * 64)], "0001_a.sql: was changed"),
        ([(3, "0003_c.sql", "0" * 64)], "0003_c.sql: was applied, but this version"),
    ],
)
def test_a_changed_or_unknown_migration_is_an_error(
    tmp_path: Path, applied: list[tuple[int, str, str]], named: str
) -> None:
    with pytest.raises(MigrationError, match=named):
        outstanding(load(write(tmp_path, "0001_a.sql", "0002_b.sql")), applied)


def test_a_migration_that_was_overtaken_is_an_error(tmp_path: Path) -> None:
    first, second = load(write(tmp_path, "0001_a.sql", "0002_b.sql"))
    with pytest.raises(MigrationError, match=r"0001_a\.sql: was not applied"):
        outstanding((first, second), [(2, second.name, second.checksum)])


def test_statements_end_with_a_semicolon_at_the_end_of_a_line() -> None:
    sql = "-- a comment; with a semicolon\nSELECT ';' AS a,\n  1;\n\n  -- another\nSELECT 2"
    assert split(sql) == ("SELECT ';' AS a,\n  1", "SELECT 2")


def test_every_statement_that_ships_can_run_twice() -> None:
    statements = [statement for migration in load(folder()) for statement in migration.statements]
    assert statements
    for statement in statements:
        assert re.match(r"CREATE (TABLE IF NOT EXISTS|OR REPLACE VIEW) ", statement), statement


def test_nothing_is_aggregated_on_the_way_in() -> None:
    assert not any("MATERIALIZED VIEW" in s.upper() for m in load(folder()) for s in m.statements)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://h/db", Address("db", host="h", port=8123)),
        ("https://h", Address("afterturn", host="h", port=8443, secure=True)),
        ("http://u:p%40ss@h:99/x", Address("x", host="h", port=99, username="u", password="p@ss")),
        ("chdb:/some/where", Address("afterturn", path=Path("/some/where"))),
    ],
)
def test_addresses(text: str, expected: Address) -> None:
    address = Address.parse(text)
    assert address == expected
    assert "p@ss" not in repr(address)


@pytest.mark.parametrize(
    "text", ["", "chdb:", "tcp://h/db", "http:///db", "http://h:x/db", "http://h/db?a=1"]
)
def test_a_wrong_address_names_the_setting(text: str) -> None:
    with pytest.raises(AddressError, match=r"^clickhouse: "):
        Address.parse(text)
