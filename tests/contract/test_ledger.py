"""The suite that every ledger passes: the engine in process, the HTTP interface, a server where Docker is."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import limits
from schemas.usage import UsageBooked
from services.credits.clickhouse import Connection
from services.credits.ledger import ClickHouseLedger, Ledger, Row, Spend
from services.credits.policy import charge, parse
from services.failures import Fatal, Transient
from tests.clickhouse import (
    AT,
    BOOKED_AT,
    DOCKER_MISSING,
    http_in_process,
    open_ledger,
    row,
    server_in_container,
)


class Lane(NamedTuple):
    ledger: Ledger
    connection: Connection
    address: str


LANES = ["chdb", "http"] if DOCKER_MISSING else ["chdb", "http", "server"]


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with server_in_container() as address:
        yield address


@pytest.fixture(params=LANES)
async def lane(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lane]:
    with ExitStack() as stack:
        if request.param == "chdb":
            address = f"chdb:{tmp_path}/ledger"
        elif request.param == "http":
            address, _ = stack.enter_context(http_in_process(tmp_path))
        else:
            # each test in a database of its own
            address = f"{request.getfixturevalue('server')}_{abs(hash(request.node.name))}"
        connection, ledger = await open_ledger(address)
        yield Lane(ledger, connection, address)
        await ledger.close()


@pytest.mark.skipif(DOCKER_MISSING is not None, reason=str(DOCKER_MISSING))
def test_the_server_lane_takes_part() -> None:
    assert "server" in LANES


@pytest.mark.rule("C1", "C2")
async def test_a_use_is_booked_with_all_its_fields(lane: Lane) -> None:
    use = row(3, user_id="", character="", model="a 'model' 100%\\", credits=Decimal("999999999999.999999"))
    assert await lane.ledger.book([use]) == (1, (True,))
    stored = await lane.connection.rows(
        "SELECT id, topic, partition, offset, at, user_id, chat_id, character, model, stage,"
        " tokens_in, tokens_out, credits, booked_at FROM usage"
    )
    assert stored == [(*use, BOOKED_AT)]


@pytest.mark.rule("C1")
@pytest.mark.parametrize(
    "at",
    [
        datetime(limits.FIRST_YEAR, 1, 1, tzinfo=UTC),
        # in UTC the year has one day more than where it was written
        datetime(limits.LAST_YEAR + 1, 1, 1, 11, 59, tzinfo=UTC),
    ],
)
async def test_every_time_that_an_event_may_have_is_booked(lane: Lane, at: datetime) -> None:
    use = row(1, at=at, tokens_in=limits.USED_TOKENS, tokens_out=limits.USED_TOKENS)
    assert await lane.ledger.book([use]) == (1, (True,))
    assert await lane.ledger.book([use]) == (0, (False,))
    assert await lane.connection.rows("SELECT at, tokens_in FROM usage") == [(at, limits.USED_TOKENS)]


@pytest.mark.rule("C2")
async def test_a_redelivered_batch_changes_nothing(lane: Lane) -> None:
    rows = [row(number) for number in range(50)]
    await lane.ledger.book(rows)
    before = await lane.ledger.totals()
    # the worker died between insert and acknowledgement: the same records come again
    assert await lane.ledger.book(rows) == (0, (False,) * 50)
    assert await lane.ledger.totals() == before
    assert await lane.ledger.duplicates() == (0, 0)


@pytest.mark.rule("C2")
async def test_overlapping_batches_book_the_difference(lane: Lane) -> None:
    await lane.ledger.book([row(number) for number in range(10)])
    booking = await lane.ledger.book([row(number) for number in range(5, 15)])
    assert booking == (5, (False,) * 5 + (True,) * 5)
    assert (await lane.ledger.totals()).uses == 15


@pytest.mark.rule("C2")
async def test_equal_ids_in_one_batch_are_one_use(lane: Lane) -> None:
    assert await lane.ledger.book([row(1), row(2), row(1)]) == (2, (True, True, False))
    assert await lane.ledger.duplicates() == (0, 0)


@pytest.mark.rule("C2")
async def test_two_writers_that_race_are_seen_as_one(lane: Lane) -> None:
    """Both looked before either had inserted. What was booked first stays, whatever the second was priced at."""
    later = ClickHouseLedger(lane.connection, clock=lambda: BOOKED_AT + timedelta(seconds=1))
    earlier = ClickHouseLedger(lane.connection, clock=lambda: BOOKED_AT)
    await later._insert([row(1, credits=Decimal(2)), row(2)])
    await earlier._insert([row(1, credits=Decimal(1)), row(3)])
    assert await lane.ledger.duplicates() == (1, 0)
    assert await lane.ledger.totals() == Spend(
        3, 101 + 102 + 103, 30, Decimal(1) + row(2).credits + row(3).credits
    )
    await lane.connection.command("OPTIMIZE TABLE credits FINAL")
    assert await lane.ledger.duplicates() == (0, 0)
    assert (await lane.ledger.totals()).credits == Decimal(1) + row(2).credits + row(3).credits


@pytest.mark.rule("C1")
async def test_the_price_is_the_one_in_force_when_it_happened(lane: Lane) -> None:
    prices = parse(
        {
            "default": [{"input": "1", "output": "1"}],
            "models": {
                "m": [
                    {"input": "0.5", "output": "2"},
                    {"effective": "2026-12-01", "input": "0.000001", "output": "3"},
                ]
            },
        }
    )
    change = datetime(2026, 12, 1, tzinfo=UTC)
    rows = []
    for number, at in enumerate((change - timedelta(milliseconds=1), change)):
        use = UsageBooked(
            id=f"e{number}", at=at, chat_id="c", model="m", stage="reply", tokens_in=10, tokens_out=1
        )
        rows.append(
            row(number, at=at, tokens_in=10, tokens_out=1, stage="reply", credits=charge(prices, use))
        )
    await lane.ledger.book(rows)
    assert (await lane.ledger.totals()).credits == Decimal("7") + Decimal("3.000010")
    assert await lane.connection.rows("SELECT day, credits FROM spend_by_day ORDER BY day") == [
        ((change - timedelta(days=1)).date(), Decimal("7.000000")),
        (change.date(), Decimal("3.000010")),
    ]


uses = st.lists(
    st.builds(
        row,
        st.integers(0, 60),
        at=st.datetimes(
            datetime(limits.FIRST_YEAR, 1, 1), datetime(limits.LAST_YEAR, 12, 31), timezones=st.just(UTC)
        ).map(lambda at: at.replace(microsecond=0)),
        stage=st.sampled_from(["reply", "chunk", "merge", "compress"]),
        tokens_in=st.integers(0, 2**40),
        tokens_out=st.integers(0, 2**40),
        credits=st.decimals(0, Decimal("999999999"), places=6, allow_nan=False),
    ),
    max_size=40,
    unique_by=lambda use: use.id,
)


@pytest.mark.rule("C1", "C2")
@given(rows=uses, seed=st.integers(0, 2**32))
@settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
async def test_the_sum_is_exact_whatever_is_delivered_how_often(
    lane: Lane, rows: list[Row], seed: int
) -> None:
    await lane.connection.command("TRUNCATE TABLE credits")
    dice = random.Random(seed)
    delivered = rows + dice.choices(rows, k=len(rows)) if rows else []
    dice.shuffle(delivered)
    while delivered:
        size = dice.randint(1, 15)
        await lane.ledger.book(delivered[:size])
        delivered = delivered[size:]
    assert await lane.ledger.totals() == Spend(
        len(rows),
        sum(use.tokens_in for use in rows),
        sum(use.tokens_out for use in rows),
        sum((use.credits for use in rows), Decimal(0)),
    )
    by_stage = await lane.ledger.spend_by_stage()
    assert sum((spend.credits for spend in by_stage.values()), Decimal(0)) == sum(
        (use.credits for use in rows), Decimal(0)
    )


@pytest.mark.rule("C2")
async def test_a_batch_over_many_months_and_many_lookups(lane: Lane) -> None:
    """An imported history: more months than ClickHouse takes in one block by default, more ids than one query."""
    rows = [row(number, at=AT - timedelta(days=number * 0.6)) for number in range(5_500)]
    assert (await lane.ledger.book(rows)).inserted == 5_500
    assert (await lane.ledger.book(rows)).inserted == 0
    assert (await lane.ledger.totals()).uses == 5_500


async def test_what_is_booked_is_found_in_any_month(lane: Lane) -> None:
    await lane.ledger.book([row(1), row(2, at=AT - timedelta(days=900))])
    assert await lane.ledger.booked(["use-1", "use-2", "use-3"]) == {"use-1", "use-2"}
    assert await lane.ledger.booked([]) == set()


async def test_a_cancelled_booking_is_finished_before_the_next_one_looks(lane: Lane) -> None:
    rows = [row(number) for number in range(200)]
    first = asyncio.create_task(lane.ledger.book(rows))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await lane.ledger.book(rows)
    assert (await lane.ledger.totals()).uses == 200
    assert await lane.ledger.duplicates() == (0, 0)


async def test_a_missing_table_stops_the_worker(lane: Lane) -> None:
    await lane.connection.command("DROP TABLE credits")
    with pytest.raises(Fatal, match="afterturn migrate"):
        await lane.ledger.book([row()])


async def test_what_was_booked_survives_reopening(tmp_path: Path) -> None:
    address = f"chdb:{tmp_path}/kept"
    for expected in (1, 0):
        connection, ledger = await open_ledger(address)
        assert (await ledger.book([row()])).inserted == expected
        await connection.close()
        await connection.close()


@pytest.mark.rule("C2")
async def test_a_server_that_is_away_is_an_outage_until_it_is_back(tmp_path: Path) -> None:
    with http_in_process(tmp_path) as (address, server):
        _, ledger = await open_ledger(address)
        await ledger.book([row(1)])
        await ledger.close()
        port = server.server_address[1]
    ledger = ClickHouseLedger(Connection(address))
    with pytest.raises(Transient) as raised:
        await ledger.book([row(1), row(2)])
    assert raised.value.outage
    assert "tester" not in str(raised.value)
    with http_in_process(tmp_path, port):
        assert (await ledger.book([row(1), row(2)])).new == (False, True)
    with pytest.raises(Transient) as raised:
        await ledger.book([row(3)])
    assert raised.value.outage
    await ledger.close()


@pytest.mark.rule("C2")
@pytest.mark.parametrize(
    ("first", "second"), [(datetime(2026, 11, 30, tzinfo=UTC), 1), (datetime(2026, 12, 31, tzinfo=UTC), 31)]
)
async def test_a_use_that_comes_back_in_the_next_month_is_known(
    lane: Lane, first: datetime, second: int
) -> None:
    """A frontend that sends a turn again without a time gives its use the time of the second record."""
    await lane.ledger.book([row(1, at=first)])
    assert (await lane.ledger.book([row(1, at=first + timedelta(days=second))])).inserted == 0


async def test_one_directory_at_a_time_in_one_process(tmp_path: Path) -> None:
    first, _ = await open_ledger(f"chdb:{tmp_path}/first")
    second = ClickHouseLedger(Connection(f"chdb:{tmp_path}/second"))
    with pytest.raises(Fatal, match="second cannot be opened"):
        await second.totals()
    await first.close()
    # closed, it makes room: the same object opens now
    with pytest.raises(Fatal, match="afterturn migrate"):
        await second.totals()
    await second.close()
