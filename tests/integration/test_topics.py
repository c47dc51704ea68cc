"""Topics and their epochs, on both brokers. An epoch is promise 9 of the design: a log has an identity."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from infra import topics
from schemas import limits
from schemas.delivery import Topics, dead_letters
from tests.stack import Broker, until

NAMES = {spec.name for spec in topics.wanted()}


async def _recreate(bootstrap: str, topic: str, partitions: int = 12) -> None:
    """Delete the topic by other means than ours, make it again, and wait until the broker shows the new one."""
    before = (await topics.read_epochs(bootstrap)).get(topic)
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()

    async def gone() -> bool:
        return topic not in await topics.read_epochs(bootstrap)

    async def shown() -> bool:
        return (await topics.read_epochs(bootstrap)).get(topic) not in (None, before)

    try:
        if before is not None:
            await admin.delete_topics([topic])
            await until(gone, f"{topic} is deleted")
        await admin.create_topics([NewTopic(topic, partitions, 1)])
        await until(shown, f"{topic} is there")
    finally:
        await admin.close()


async def test_missing_topics_are_created_and_what_exists_is_left(bare_broker: Broker) -> None:
    first = await topics.apply(bare_broker.bootstrap)
    second = await topics.apply(bare_broker.bootstrap)

    assert set(first.created) == NAMES
    assert first.existing == ()
    assert second.created == ()
    assert set(second.existing) == NAMES


async def test_every_topic_of_the_schemas_is_there_with_its_dead_letters(broker: Broker) -> None:
    epochs = await topics.read_epochs(broker.bootstrap)

    assert {Topics.TURNS, Topics.CHUNKS, Topics.SUMMARIES, Topics.USAGE} <= set(epochs)
    assert {Topics.MEMORY_COMMANDS, Topics.MEMORY_CHANGES} <= set(epochs)
    assert not [name for name in epochs if name.startswith(f"{Topics.MEMORY_CHANGES}.")], (
        "nobody of ours reads it"
    )
    assert dead_letters(Topics.TURNS, "window") in epochs


async def test_a_topic_with_another_number_of_partitions_is_an_error_that_names_it(
    bare_broker: Broker,
) -> None:
    await _recreate(bare_broker.bootstrap, Topics.CHUNKS, partitions=3)

    with pytest.raises(topics.TopicsDiffer, match=r"chat\.chunks\.v1 has 3 partitions, not 12"):
        await topics.apply(bare_broker.bootstrap)

    assert Topics.TURNS not in await topics.read_epochs(bare_broker.bootstrap), "nothing was created"


async def test_epochs_stay_while_the_log_does(broker: Broker) -> None:
    before = await topics.read_epochs(broker.bootstrap)
    await topics.apply(broker.bootstrap)

    assert await topics.read_epochs(broker.bootstrap) == before
    assert len(set(before.values())) == len(before)


async def test_a_topic_that_was_made_again_has_a_new_epoch(broker: Broker) -> None:
    before = await topics.read_epochs(broker.bootstrap)
    await _recreate(broker.bootstrap, Topics.TURNS)
    after = await topics.read_epochs(broker.bootstrap)

    assert after.pop(Topics.TURNS) != before.pop(Topics.TURNS)
    assert after == before


async def test_applying_at_the_same_time_ends_in_one_epoch(bare_broker: Broker) -> None:
    async def apply_and_read() -> dict[str, str]:
        await topics.apply(bare_broker.bootstrap)
        return await topics.read_epochs(bare_broker.bootstrap)

    seen = await asyncio.gather(*(apply_and_read() for _ in range(5)))

    assert all(epochs == seen[0] for epochs in seen)
    assert await topics.read_epochs(bare_broker.bootstrap) == seen[0]


async def test_reading_epochs_creates_nothing(bare_broker: Broker) -> None:
    assert await topics.read_epochs(bare_broker.bootstrap) == {}
    assert await topics.read_epochs(bare_broker.bootstrap) == {}


async def test_the_largest_event_fits_and_its_dead_letter_too(broker: Broker) -> None:
    value = b"x" * limits.EVENT_BYTES
    reason = [("reason", b"r" * 16_384)]
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks="all", max_request_size=2_000_000)
    await producer.start()
    try:
        sent = await producer.send_and_wait(Topics.TURNS, value, key=b"c" * limits.ID_CHARACTERS)
        await producer.send_and_wait(dead_letters(Topics.TURNS, "window"), value, key=b"c", headers=reason)
    finally:
        await producer.stop()

    consumer = AIOKafkaConsumer(
        Topics.TURNS, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    try:
        record = await consumer.getone()
    finally:
        await consumer.stop()
    assert (record.partition, record.offset, record.value == value) == (sent.partition, 0, True)
