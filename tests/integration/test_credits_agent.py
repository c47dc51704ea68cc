"""The credits agent on the real engine: records in, rows out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.delivery import Record
from services.credits.clickhouse import Connection
from services.credits.ledger import ClickHouseLedger
from services.credits.policy import parse
from services.failures import Poison, Transient
from services.work import DONE, REPEATED
from streams.credits import Credits
from tests.clickhouse import open_ledger

PRICES = parse({"default": [{"input": "0.001", "output": "0.004"}]})


def record(offset: int, value: bytes | None = None, **changes: Any) -> Record:
    event = {
        "type": "usage.booked",
        "id": f"e{offset}",
        "at": "2026-11-30T10:00:00Z",
        "chat_id": "c1",
        "model": "m",
        "stage": "reply",
        "tokens_in": 1000,
        "tokens_out": 10,
        **changes,
    }
    body = json.dumps(event).encode() if value is None else value
    return Record("credits.usage.v1", 3, offset, b"u1", body, (), 0)


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[tuple[Connection, ClickHouseLedger]]:
    connection, ledger = await open_ledger(f"chdb:{tmp_path}/ledger")
    yield connection, ledger
    await ledger.close()


@pytest.mark.rule("C1", "C2")
async def test_each_record_gets_its_answer_in_order(opened: tuple[Connection, ClickHouseLedger]) -> None:
    connection, ledger = opened
    agent = Credits(ledger, PRICES)
    assert await agent.handle([record(1)]) == [DONE]
    answers = await agent.handle([record(1), record(2, stage="song"), record(3), record(4, id="e3")])
    assert [answers[0], answers[2], answers[3]] == [REPEATED, DONE, REPEATED]
    assert isinstance(answers[1], Poison)
    assert await connection.rows(
        "SELECT id, topic, partition, offset, user_id, character, credits FROM usage ORDER BY id"
    ) == [
        ("e1", "credits.usage.v1", 3, 1, "", "", Decimal("1.040000")),
        ("e3", "credits.usage.v1", 3, 3, "", "", Decimal("1.040000")),
    ]


@pytest.mark.rule("C1")
async def test_a_use_for_which_no_chat_was_read_is_booked(
    opened: tuple[Connection, ClickHouseLedger],
) -> None:
    connection, ledger = opened
    generation = record(1, chat_id=None, user_id="u1", stage="generation")
    assert await Credits(ledger, PRICES).handle([generation]) == [DONE]
    assert await connection.rows("SELECT chat_id, user_id, stage FROM usage") == [("", "u1", "generation")]


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (record(1, value=b"not json"), "value: "),
        (record(1, value=b""), "value: "),
        (Record("t", 0, 1, None, None, (), 0), "value: "),
        (record(1, value=b"\xff"), "value: "),
        (record(1, tokens_in=-1), "tokens_in: "),
        (record(1, tokens_in=2**70), "tokens_in: "),
        (record(1, at="2026-11-30T10:00:00"), "at: "),
        (record(1, at="1812-01-01T00:00:00Z"), "at: "),
        (record(1, model=""), "model: "),
        (record(1, id="has space"), "id: "),
        (record(1, model="\ud800"), "value: "),
    ],
)
async def test_a_wrong_record_names_its_field_and_holds_nothing_up(
    opened: tuple[Connection, ClickHouseLedger], bad: Record, named: str
) -> None:
    answers = await Credits(opened[1], PRICES).handle([bad, record(2)])
    assert isinstance(answers[0], Poison)
    assert str(answers[0]).startswith(named)
    assert answers[1] == DONE


async def test_an_empty_batch_or_one_of_poison_asks_nothing(
    opened: tuple[Connection, ClickHouseLedger],
) -> None:
    agent = Credits(opened[1], PRICES)
    assert await agent.handle([]) == []
    assert isinstance((await agent.handle([record(1, value=b"{}")]))[0], Poison)


@pytest.mark.rule("C2")
async def test_while_clickhouse_is_away_nothing_is_answered() -> None:
    ledger = ClickHouseLedger(Connection("http://127.0.0.1:1/afterturn"))
    with pytest.raises(Transient) as raised:
        await Credits(ledger, PRICES).handle([record(1), record(2, value=b"{}")])
    assert raised.value.outage
    await ledger.close()
