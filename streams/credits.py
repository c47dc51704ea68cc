"""The credits agent: usage events in, rows in ClickHouse out, each once (C1, C2).

| the process dies | what follows |
|---|---|
| before the insert | nothing is acknowledged; the records are delivered again |
| after it, before the acknowledgement | the redelivery finds the rows and acknowledges |

ClickHouse away: the batch raises Transient(outage=True), the worker stops reading, and Kafka keeps the records.
Shown by tests/integration/test_credits_agent.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import TypeAdapter

from schemas.delivery import Record
from schemas.usage import UsageBooked
from services.credits.ledger import Ledger, Row
from services.credits.policy import PriceTable, Unbookable, charge
from services.failures import Poison
from services.work import DONE, REPEATED, Work
from streams.runtime.decoding import decode

_EVENT = TypeAdapter(UsageBooked)


class Credits:
    """A batching agent. Rows and time of a batch are the runtime's (settings ledger_rows and ledger_delay)."""

    def __init__(self, ledger: Ledger, prices: PriceTable) -> None:
        self._ledger = ledger
        self._prices = prices

    async def handle(self, records: Sequence[Record]) -> Sequence[Work | Poison]:
        """Book a batch; one answer per record, in order. Raises Transient(outage=True) while ClickHouse is away."""
        rows = [self._row(record) for record in records]
        booking = await self._ledger.book([row for row in rows if isinstance(row, Row)])
        news = iter(booking.new)
        return [row if isinstance(row, Poison) else DONE if next(news) else REPEATED for row in rows]

    def _row(self, record: Record) -> Row | Poison:
        try:
            usage = decode(_EVENT, record)
            credits = charge(self._prices, usage)
        except Poison as poison:
            return poison
        except Unbookable as error:
            return Poison(str(error))
        return Row(
            id=usage.id,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            at=usage.at,
            user_id=usage.user_id or "",
            chat_id=usage.chat_id or "",
            character=usage.character or "",
            model=usage.model,
            stage=usage.stage,
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            credits=credits,
        )
