"""Publishing to Kafka: done means confirmed by all in-sync replicas."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError
from aiokafka.partitioner import DefaultPartitioner

from schemas import limits
from schemas.delivery import Outgoing
from services.failures import Poison, Transient
from services.settings import Settings

RECORD_BYTES = 2 * limits.EVENT_BYTES
"""Largest record: an event and, in a dead letter, what is said about it."""

BATCH_FROM = 4
"""Records from which on they are put into batches here."""

Header = tuple[str, bytes]

_PARTITIONER = DefaultPartitioner()


@lru_cache(maxsize=65_536)
def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, by murmur2."""
    everywhere = list(range(partitions))
    return int(_PARTITIONER(key, everywhere, everywhere))


def tls(settings: Settings) -> ssl.SSLContext:
    """Trusts the system's authorities, or the brokers' own where one is set."""
    return ssl.create_default_context(cafile=str(settings.kafka_ca) if settings.kafka_ca else None)


def client_options(settings: Settings) -> dict[str, Any]:
    """Connection options that aiokafka's clients have in common."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.kafka,
        "security_protocol": settings.kafka_security,
    }
    if settings.kafka_security.endswith("SSL"):
        options["ssl_context"] = tls(settings)
    if settings.kafka_security.startswith("SASL"):
        options |= {
            "sasl_mechanism": settings.kafka_sasl_mechanism,
            "sasl_plain_username": settings.kafka_username,
            "sasl_plain_password": settings.kafka_password.get_secret_value()
            if settings.kafka_password
            else None,
        }
    return options


class Publisher:
    """One producer of a process. Keys are hashed with murmur2, as Java clients do."""

    def __init__(self, settings: Settings, *, timeout: float = 30.0) -> None:
        self._options = client_options(settings)
        self._timeout = timeout
        self._producer: AIOKafkaProducer | None = None

    async def start(self) -> None:
        """Connect. Raises Transient(outage) where no broker answers."""
        self._producer = AIOKafkaProducer(
            **self._options,
            acks="all",
            linger_ms=1,
            max_request_size=RECORD_BYTES,
            request_timeout_ms=int(self._timeout * 1000),
        )
        try:
            await self._producer.start()
        except BaseException as error:
            # also where the start is cancelled: nothing stays connected
            await self._producer.stop()
            if isinstance(error, KafkaError):
                raise Transient(f"Kafka does not answer: {type(error).__name__}", outage=True) from error
            raise

    async def stop(self) -> None:
        """Send what is buffered and disconnect."""
        if self._producer is not None:
            await self._producer.stop()

    async def ready(self) -> bool:
        """Whether a broker answers now. Raises KafkaError, OSError where none does."""
        assert self._producer is not None, "not started"
        return bool(await self._producer.client.fetch_all_metadata())

    async def partition(self, topic: str, key: bytes) -> int:
        """Where records of a key are. Raises Transient(outage) where no broker tells."""
        assert self._producer is not None, "not started"
        try:
            return partition_of(key, len(await self._producer.partitions_for(topic)))
        except KafkaError as error:
            raise Transient(f"Kafka does not answer: {type(error).__name__}", outage=True) from error

    async def publish(self, records: Sequence[Outgoing]) -> None:
        """Return once the broker has confirmed all records; those of one key stay in order. Raises Transient(outage),
        Poison for one over the size limit."""
        assert self._producer is not None, "not started"
        try:
            if len(records) >= BATCH_FROM:
                confirmed = await self._send_batches(records)
            else:
                send = self._producer.send
                confirmed = [
                    # the client takes a list and nothing else
                    await send(topic=r.topic, key=r.key, value=r.value, headers=list(r.headers))
                    for r in records
                ]
            # one that fails must not leave the others' errors unread
            results = await asyncio.gather(*confirmed, return_exceptions=True)
        except MessageSizeTooLargeError as error:
            raise Poison(f"a record is over {RECORD_BYTES} bytes") from error
        except KafkaError as error:
            raise Transient(f"Kafka did not confirm: {type(error).__name__}", outage=True) from error
        for result in results:
            if isinstance(result, MessageSizeTooLargeError):
                raise Poison(f"a record is over {RECORD_BYTES} bytes") from result
            if isinstance(result, KafkaError):
                raise Transient(f"Kafka did not confirm: {type(result).__name__}", outage=True) from result
            if isinstance(result, BaseException):
                raise result

    async def _send_batches(self, records: Sequence[Outgoing]) -> list[asyncio.Future[Any]]:
        """A batch per partition, filled here: a fifth of the cost of sending each record on its own."""
        producer = self._producer
        assert producer is not None
        confirmed = []
        places: dict[tuple[str, int], list[Outgoing]] = {}
        counts: dict[str, int] = {}
        for record in records:
            if len(record.key) + len(record.value or b"") > RECORD_BYTES:
                raise MessageSizeTooLargeError
            if record.topic not in counts:
                counts[record.topic] = len(await producer.partitions_for(record.topic))
            place = record.topic, partition_of(record.key, counts[record.topic])
            places.setdefault(place, []).append(record)
        for (topic, partition), group in places.items():
            batch = producer.create_batch()
            for record in group:
                key, value, headers = record.key, record.value, list(record.headers)
                if batch.append(timestamp=None, key=key, value=value, headers=headers) is None:
                    confirmed.append(await producer.send_batch(batch, topic, partition=partition))
                    batch = producer.create_batch()
                    batch.append(timestamp=None, key=key, value=value, headers=headers)
            confirmed.append(await producer.send_batch(batch, topic, partition=partition))
        return confirmed

    async def forward(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[Header]
    ) -> None:
        """Publish bytes as they are (dead letters); confirmed on return. Raises Transient(outage), Poison for what is
        over the size limit of the producer or of the topic."""
        assert self._producer is not None, "not started"
        try:
            if key is None and value is None:
                # `send` refuses what other clients may write; a batch takes it
                batch = self._producer.create_batch()
                batch.append(timestamp=None, key=None, value=None, headers=list(headers))
                await (await self._producer.send_batch(batch, topic, partition=0))
                return
            await self._producer.send_and_wait(topic, value=value, key=key, headers=headers)
        except MessageSizeTooLargeError as error:
            raise Poison(f"the record is larger than {topic} takes") from error
        except KafkaError as error:
            raise Transient(f"Kafka did not confirm: {type(error).__name__}", outage=True) from error
