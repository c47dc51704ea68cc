"""The ledger: a row for every use of a model, in ClickHouse once (C2).

| the process dies | what follows |
|---|---|
| before the insert | nothing is booked; the records are delivered again |
| after the insert, before the acknowledgement | the redelivery finds the ids and inserts nothing |
| two writers insert the same use at once | two rows, of which every view shows the one that was booked first |

Shown by tests/contract/test_ledger.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

from services.credits.clickhouse import Connection

LOOKUP_IDS = 5_000
"""Ids in one query for what is booked already."""

# an id has at most 200 characters of up to 4 bytes, and may double when it is quoted
_LOOKUP_SETTINGS = {"max_query_size": 16_777_216}
# imported histories span years: a batch may touch any number of months
_INSERT_SETTINGS = {"max_partitions_per_insert_block": 0}


class Row(NamedTuple):
    """A use with its price. `user_id` and `character` are empty where there is none; `at` is in UTC."""

    id: str
    topic: str
    partition: int
    offset: int
    at: datetime
    user_id: str
    chat_id: str
    character: str
    model: str
    stage: str
    tokens_in: int
    tokens_out: int
    credits: Decimal


_TYPES = {
    "id": "String",
    "topic": "LowCardinality(String)",
    "partition": "UInt32",
    "offset": "UInt64",
    "at": "DateTime64(3, 'UTC')",
    "user_id": "String",
    "chat_id": "String",
    "character": "String",
    "model": "LowCardinality(String)",
    "stage": "LowCardinality(String)",
    "tokens_in": "UInt64",
    "tokens_out": "UInt64",
    "credits": "Decimal(18, 6)",
}


class Booking(NamedTuple):
    """What became of a batch: rows inserted, and for each row in order whether it was new."""

    inserted: int
    new: tuple[bool, ...]


class Spend(NamedTuple):
    """Sums over uses, each counted once."""

    uses: int
    tokens_in: int
    tokens_out: int
    credits: Decimal


class Ledger(Protocol):
    """Every implementation passes tests/contract/test_ledger.py.

    All methods raise Transient(outage=True) while the store is away, and Fatal where its schema is wrong.
    """

    async def book(self, rows: Sequence[Row]) -> Booking:
        """Insert the rows whose ids are not booked yet, in one insert; the first of a batch's equal ids counts."""

    async def spend_by_stage(self) -> dict[str, Spend]:
        """Sums per stage."""

    async def totals(self) -> Spend:
        """Sums over everything."""

    async def duplicates(self) -> tuple[int, int]:
        """Rows beyond the first of their id: as stored (merged away in time), and as readers see them (0 if sound)."""

    async def booked(self, ids: Sequence[str]) -> set[str]:
        """Which of these uses are there, in whatever month (for an audit; booking looks in the months of its rows)."""

    async def close(self) -> None:
        """Release the store."""


class ClickHouseLedger:
    """The ledger on ClickHouse, a server or in process. `clock` gives `booked_at` of the rows."""

    def __init__(
        self, connection: Connection, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._connection = connection
        self._clock = clock

    async def book(self, rows: Sequence[Row]) -> Booking:
        """See Ledger."""
        known = await self._known(rows)
        fresh: list[Row] = []
        new = []
        for row in rows:
            is_new = row.id not in known
            new.append(is_new)
            if is_new:
                known.add(row.id)
                fresh.append(row)
        if fresh:
            await self._insert(fresh)
        return Booking(len(fresh), tuple(new))

    async def _known(self, rows: Sequence[Row]) -> set[str]:
        """Which of the ids are there, looked up in each row's month and the one before.

        An event keeps its time. Only a turn that its frontend sent without one, and sends again, gets the time of the
        second record; the first is hardly ever older than a month.
        """
        found: set[str] = set()
        for part in _slices(rows, LOOKUP_IDS):
            months = tuple({month for row in part for month in _months(row.at)})
            ids = tuple({row.id for row in part})
            found.update(
                row[0]
                for row in await self._connection.rows(
                    "SELECT id FROM credits WHERE toYYYYMM(at) IN %(months)s AND id IN %(ids)s",
                    {"months": months, "ids": ids},
                    _LOOKUP_SETTINGS,
                )
            )
        return found

    async def _insert(self, rows: Sequence[Row]) -> None:
        values = dict(zip(Row._fields, zip(*rows, strict=True), strict=True))
        columns: dict[str, tuple[str, Sequence[Any]]] = {
            name: (kind, values[name]) for name, kind in _TYPES.items()
        }
        columns["booked_at"] = ("DateTime64(3, 'UTC')", [self._clock()] * len(rows))
        await self._connection.insert("credits", columns, _INSERT_SETTINGS)

    async def spend_by_stage(self) -> dict[str, Spend]:
        """See Ledger."""
        rows = await self._connection.rows(
            "SELECT stage, uses, tokens_in, tokens_out, credits FROM spend_by_stage ORDER BY stage"
        )
        return {stage: Spend(*sums) for stage, *sums in rows}

    async def totals(self) -> Spend:
        """See Ledger."""
        rows = await self._connection.rows(
            "SELECT count(), sum(tokens_in), sum(tokens_out), sum(credits) FROM usage"
        )
        return Spend(*rows[0])

    async def duplicates(self) -> tuple[int, int]:
        """See Ledger."""
        stored = await self._connection.rows("SELECT count() - uniqExact(id) FROM credits")
        seen = await self._connection.rows("SELECT count() - uniqExact(id) FROM usage")
        return stored[0][0], seen[0][0]

    async def booked(self, ids: Sequence[str]) -> set[str]:
        """See Ledger."""
        found: set[str] = set()
        for start in range(0, len(ids), LOOKUP_IDS):
            part = tuple(ids[start : start + LOOKUP_IDS])
            rows = await self._connection.rows(
                "SELECT id FROM credits WHERE id IN %(ids)s", {"ids": part}, _LOOKUP_SETTINGS
            )
            found.update(row[0] for row in rows)
        return found

    async def of_chat(self, chat: str) -> tuple[int, tuple[str, ...]]:
        """Rows that name a chat, as stored, and all columns of the table."""
        rows = await self._connection.rows(
            "SELECT count() FROM credits WHERE chat_id = %(chat)s", {"chat": chat}
        )
        columns = await self._connection.rows(
            "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = 'credits'"
        )
        return rows[0][0], tuple(name for (name,) in columns)

    async def close(self) -> None:
        """See Ledger."""
        await self._connection.close()


def _months(at: datetime) -> tuple[int, int]:
    """The partition of a moment (year and month, 202611) and the one before it."""
    month = at.year * 100 + at.month
    return month, month - 1 if at.month > 1 else month - 89


def _slices(rows: Sequence[Row], size: int) -> Iterator[Sequence[Row]]:
    for start in range(0, len(rows), size):
        yield rows[start : start + size]
