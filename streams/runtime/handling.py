"""From a record to the moment it may be acknowledged. The order is the same for every agent (promises 1, 4 and 6):

1. the service stores its effects, with what is to be published in its outbox;
2. what is to be published is confirmed by the broker;
3. the outbox is trimmed;
4. the caller acknowledges.

A record that fails for good is a dead letter, confirmed by the broker, before step 4. This is the only place that
decides it.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Protocol

from schemas.delivery import Outgoing, Record, dead_letters
from services.deadletters.policy import LEFT_OUT, kept_headers, source
from services.failures import Fatal, Poison, Transient
from services.metrics import Metrics
from services.work import Work
from streams.runtime.limits import DeadLetterLimits
from streams.runtime.retries import Retries

log = logging.getLogger(__name__)

KeyedHandler = Callable[[Record], Awaitable[Work]]
"""Handles one record; raises Poison, Transient or Fatal."""

BatchHandler = Callable[[Sequence[Record]], Awaitable[Sequence[Work | Poison]]]
"""Handles records of one partition in order, one result each; raises Transient or Fatal for all of them."""


Acknowledge = Callable[[Sequence[Record]], None]
"""Told of records that have had all their effects."""


def _later(_: Sequence[Record]) -> None:
    """Where the caller acknowledges on return."""


class Publishes(Protocol):
    """What handling needs of a producer; see streams/runtime/publisher.py."""

    async def publish(self, records: Sequence[Outgoing]) -> None:
        """Return once all are confirmed."""

    async def forward(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]]
    ) -> None:
        """Publish bytes as they are; confirmed on return. Raises Poison for a record over the size limit."""


def where(error: BaseException) -> str:
    """An unexpected error's type and place. Not its message, which might quote a chat."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}{place}"


class Handling:
    """The steps above, for one agent."""

    def __init__(
        self, agent: str, publisher: Publishes, metrics: Metrics, limits: DeadLetterLimits, retries: Retries
    ) -> None:
        self._agent = agent
        self._publisher = publisher
        self._metrics = metrics
        self._limits = limits
        self._retries = retries

    async def single(self, record: Record, handle: KeyedHandler) -> None:
        """Return when the record may be acknowledged. Raises Fatal, and CancelledError at the end of a deadline."""

        async def batch(records: Sequence[Record]) -> Sequence[Work | Poison]:
            try:
                return [await handle(records[0])]
            except Poison as poison:
                return [poison]

        await self.batch([record], batch)

    async def batch(
        self, records: Sequence[Record], handle: BatchHandler, acknowledge: Acknowledge = _later
    ) -> None:
        """Return when all the records may be acknowledged. Raises like `single`. `acknowledge` is told of each, also of
        those that were before one that ends the worker: after a start nothing of them is done again."""
        try:
            results = await self._retries.run(lambda: handle(records))
        except Fatal:
            raise
        except Exception as error:
            if len(records) > 1:
                # one of them spoils it for the others: find out which, in order
                for record in records:
                    await self.batch([record], handle, acknowledge)
                return
            kind = "parked" if isinstance(error, Transient) else "unexpected"
            reason = str(error) if isinstance(error, Transient) else where(error)
            await self._bury(records[0], kind, reason)
            acknowledge(records)
            return
        await self._finish(records, results, acknowledge)

    async def _finish(
        self, records: Sequence[Record], results: Sequence[Work | Poison], acknowledge: Acknowledge
    ) -> None:
        publish: list[Outgoing] = []
        confirmed: list[Callable[[], Awaitable[None]]] = []
        repeated = 0
        pairs = list(zip(records, results, strict=True))
        for _, result in pairs:
            publish.extend(result.publish)
            if isinstance(result, Work):
                if result.confirmed is not None:
                    confirmed.append(result.confirmed)
                repeated += result.repeated
        if publish:
            await self._retries.run(lambda: self._publisher.publish(publish))
            self._metrics.add("published_total", len(publish))
        if confirmed:
            await asyncio.gather(*(self._retries.run(trim) for trim in confirmed))
        finished: list[Record] = []
        try:
            for record, result in pairs:
                if isinstance(result, Poison):
                    await self._bury(record, "poison", str(result), keep=result.keep)
                else:
                    self._limits.good(record.partition)
                finished.append(record)
        finally:
            acknowledge(finished)
        self._metrics.add("done_total", len(records))
        if repeated:
            self._metrics.add("repeated_total", repeated)

    async def _bury(self, record: Record, kind: str, reason: str, *, keep: bool = True) -> None:
        """Kinds: `poison` will be wrong again, `parked` did not work for too long, `unexpected` is a fault of ours.

        Without `keep` the dead letter has no value, only how large it was.
        """
        self._limits.dead(record.partition, reason, source(record) if kind == "poison" else None)
        about = {
            "afterturn-kind": kind,
            "afterturn-reason": reason,
            "afterturn-agent": self._agent,
            "afterturn-topic": record.topic,
            "afterturn-partition": str(record.partition),
            "afterturn-offset": str(record.offset),
            "afterturn-at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        }
        ours = [(name, value.encode()) for name, value in about.items()]
        headers = [*kept_headers(record.headers), *ours]
        topic = dead_letters(record.topic, self._agent)
        value = record.value
        if not keep and value is not None:
            headers.append((LEFT_OUT, str(len(value)).encode()))
            value = None
        try:
            await self._retries.run(lambda: self._publisher.forward(topic, record.key, value, headers))
        except Poison:
            # brokers limit what arrives compressed: no dead letter holds it, and its partition must not wait for ever
            ours.append((LEFT_OUT, str(len(record.value or b"")).encode()))
            await self._retries.run(lambda: self._publisher.forward(topic, None, None, ours))
        self._metrics.add("dead_total", kind=kind)
        log.warning(
            "dead letter",
            extra={"kind": kind, "reason": reason, "partition": record.partition, "offset": record.offset},
        )
