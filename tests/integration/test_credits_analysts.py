"""Every query of docs/analysts.md runs, and answers what the page shows (C4)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from services.credits.clickhouse import Connection
from tests.clickhouse import open_ledger

PAGE = Path(__file__).parents[2] / "docs" / "analysts.md"
_SQL = re.compile(r"```sql\n(?P<sql>.*?);\n```\n(?:\n(?P<table>(?:\|[^\n]*\|\n)+))?", re.DOTALL)


class Example(NamedTuple):
    """A statement of the page and the table below it."""

    sql: str
    header: list[str]
    rows: list[list[str]]


def examples(text: str) -> Iterator[Example]:
    for match in _SQL.finditer(text):
        lines = (match["table"] or "").splitlines()
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        yield Example(match["sql"], cells[0] if cells else [], cells[2:])


EXAMPLES = list(examples(PAGE.read_text()))
INSERTS = [example for example in EXAMPLES if example.sql.startswith("INSERT")]
QUERIES = [example for example in EXAMPLES if example not in INSERTS]


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[Connection]:
    connection, _ = await open_ledger(f"chdb:{tmp_path}/ledger")
    # the page shows a repeated row that ClickHouse has not merged away yet
    await connection.command("SYSTEM STOP MERGES credits")
    for insert in INSERTS:
        await connection.command(insert.sql)
    yield connection
    await connection.close()


@pytest.mark.rule("C1", "C4")
async def test_a_use_without_a_chat_counts_for_its_user_and_is_no_chat(connection: Connection) -> None:
    insert = (
        INSERTS[1]
        .sql.replace("'g1'", "'d1'")
        .replace("'lighthouse'", "''")
        .replace("'merge'", "'generation'")
    )
    [before] = await connection.rows("SELECT chats, uses, credits FROM spend_by_user WHERE user_id = 'ada'")
    chats = await connection.rows("SELECT chat_id FROM top_chats")
    await connection.command(insert)
    [after] = await connection.rows("SELECT chats, uses, credits FROM spend_by_user WHERE user_id = 'ada'")
    assert (after[0], after[1]) == (before[0], before[1] + 1)
    assert after[2] > before[2]
    assert await connection.rows("SELECT chat_id FROM top_chats") == chats
    [day] = await connection.rows("SELECT chats FROM spend_by_day WHERE day = '2026-11-30'")
    assert day[0] == 3
    [character] = await connection.rows("SELECT chats FROM spend_by_character WHERE character = 'mira'")
    assert character[0] == 2


@pytest.mark.rule("C4", "C2")
async def test_each_query_answers_what_the_page_shows(connection: Connection) -> None:
    assert len(INSERTS) == 2
    assert len(QUERIES) >= 12
    for query in QUERIES:
        found = [[str(cell) for cell in row] for row in await connection.rows(query.sql)]
        assert found == query.rows, query.sql
        assert found
        # the header names the columns in their order
        width = await connection.rows(f"DESCRIBE ({query.sql})")
        assert [column[0] for column in width] == query.header


@pytest.mark.rule("C4")
async def test_the_page_shows_every_view(connection: Connection) -> None:
    views = await connection.rows(
        "SELECT name FROM system.tables WHERE database = 'afterturn' AND engine = 'View'"
    )
    assert {name for (name,) in views} <= set(re.findall(r"`([a-z0-9_]+)`", PAGE.read_text()))
    for (name,) in views:
        assert await connection.rows(f"SELECT * FROM {name}")


@pytest.mark.rule("C4", "C2")
async def test_sums_of_all_views_agree(connection: Connection) -> None:
    total = await connection.rows("SELECT sum(credits), sum(tokens_in), sum(tokens_out) FROM usage")
    for name in ("", "_by_user", "_by_character", "_by_chat", "_by_model", "_by_stage", "_by_day"):
        sums = f"SELECT sum(credits), sum(tokens_in), sum(tokens_out) FROM spend{name}"
        assert await connection.rows(sums) == total, name


@pytest.mark.rule("C4")
async def test_a_month_reads_only_its_partition(connection: Connection) -> None:
    await connection.command(
        "INSERT INTO credits (id, at, stage, credits) VALUES ('old', '2020-01-01 00:00:00', 'reply', 1)"
    )
    plan = await connection.rows(
        "EXPLAIN indexes = 1 SELECT sum(credits) FROM spend WHERE day >= '2026-11-01'"
    )
    text = "\n".join(line for (line,) in plan)
    assert re.search(r"Parts: 2/3", text), text
