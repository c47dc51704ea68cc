"""Reads topics to their end, in no group: for commands that look at all of a log."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from schemas.delivery import Record
from services.settings import Settings
from streams.runtime.offsets import FETCH_WAIT_MS
from streams.runtime.publisher import RECORD_BYTES, client_options

_POLL_MS = 500
_FETCHED_RECORDS = 200


def consumer(settings: Settings) -> AIOKafkaConsumer:
    """One that commits nothing; to be started and stopped by the caller."""
    return AIOKafkaConsumer(
        **client_options(settings),
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        max_partition_fetch_bytes=RECORD_BYTES,
        fetch_max_wait_ms=FETCH_WAIT_MS,
    )


async def records(
    reader: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
) -> AsyncIterator[tuple[TopicPartition, Record]]:
    """Every record from where the consumer stands to before these offsets, each partition in order."""
    left = dict(ends)
    while left:
        batches = await reader.getmany(*left, timeout_ms=_POLL_MS, max_records=_FETCHED_RECORDS)
        for tp, found in batches.items():
            for raw in found:
                if raw.offset >= left[tp]:
                    break
                yield tp, _record(raw)
        for tp in list(left):
            if await reader.position(tp) >= left[tp]:
                del left[tp]


def _record(raw: Any) -> Record:
    return Record(raw.topic, raw.partition, raw.offset, raw.key, raw.value, tuple(raw.headers), raw.timestamp)
