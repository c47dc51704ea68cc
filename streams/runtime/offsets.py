"""Where a partition ends, on every broker."""

from __future__ import annotations

import time
from collections.abc import Collection

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaTimeoutError

FETCH_WAIT_MS = 20
"""`fetch_max_wait_ms` for consumers that ask for ends: an empty fetch is answered after this."""

DEADLINE = 10.0


async def end_offsets(
    consumer: AIOKafkaConsumer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """The offset after the last record of each, as a fetch from there tells it; changes the consumer's assignment.

    Not what the broker lists as the latest offset: Tansu's answer is the start of the last batch and one. Raises
    KafkaTimeoutError.
    """
    if not partitions:
        return {}
    listed = await consumer.end_offsets(partitions)
    # a new assignment knows no high watermarks: each that is known below was told by a fetch made now
    consumer.assign(list(partitions))
    for tp, offset in listed.items():
        consumer.seek(tp, offset)
    until = time.monotonic() + DEADLINE
    while any(consumer.highwater(tp) is None for tp in partitions):
        await consumer.getmany(timeout_ms=FETCH_WAIT_MS)
        if time.monotonic() > until:
            raise KafkaTimeoutError(f"no answer to a fetch within {DEADLINE:.0f} s")
    return {tp: consumer.highwater(tp) for tp in partitions}
