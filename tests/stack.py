"""The servers of the tests: which brokers a test runs on, and how one is emptied between two tests.

`AFTERTURN_TEST_BROKER` chooses: `embedded` (Tansu, a new one for each test, 20 ms), `apache` (one Apache Kafka for
the session, its topics and groups deleted before each test), `external` (the one at `AFTERTURN_TEST_KAFKA`,
HOST:PORT, whose topics of this project are DELETED before each test) or `all`, the default: embedded and apache.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.admin import DeleteGroupsRequest

from infra import topic_metadata, topics
from infra.stack import Server, jars

_LANES = {
    "embedded": ("embedded",),
    "apache": ("apache",),
    "external": ("external",),
    "all": ("embedded", "apache"),
}


def lanes() -> tuple[str, ...]:
    """The brokers that a test with the fixture `broker` runs on."""
    chosen = os.environ.get("AFTERTURN_TEST_BROKER") or "all"
    if chosen not in _LANES:
        raise ValueError(f"AFTERTURN_TEST_BROKER={chosen} is none of {', '.join(_LANES)}")
    return _LANES[chosen]


def external() -> str:
    """HOST:PORT of the broker that runs already."""
    address = os.environ.get("AFTERTURN_TEST_KAFKA")
    if not address:
        raise ValueError("AFTERTURN_TEST_BROKER=external needs AFTERTURN_TEST_KAFKA=HOST:PORT")
    return address


def require(kind: str) -> None:
    """Skip the test, in one line that says why, where a broker of this kind cannot run."""
    reason = jars.missing() if kind == "apache" else None
    if reason:
        pytest.skip(f"Apache Kafka lane: {reason}")


@dataclass(frozen=True)
class Broker:
    """A broker of one test. `kind` is "embedded", "apache" or "external"; `server` is None for external."""

    kind: str
    bootstrap: str
    server: Server | None = None


async def empty(broker: Broker) -> None:
    """Delete the topics and groups of earlier tests; on an external broker the topics of this project alone."""
    ours = {spec.name for spec in topics.wanted()}
    async with _admin(broker.bootstrap) as admin:
        cluster = await topic_metadata.describe(admin)
        present = {name for name, topic in cluster.topics.items() if not topic.internal}
        doomed = present & ours if broker.kind == "external" else present
        if doomed:
            await admin.delete_topics(sorted(doomed))

        async def topics_gone() -> bool:
            return doomed.isdisjoint((await topic_metadata.describe(admin)).topics)

        async def groups_gone() -> bool:
            return await _delete_groups(admin)

        await until(topics_gone, "the topics of an earlier test are deleted")
        if broker.kind != "external":
            await until(groups_gone, "the groups of an earlier test are deleted")


async def until(holds: Callable[[], Awaitable[bool]], what: str, deadline: float = 30.0) -> None:
    """Ask again and again until `holds`; raises TimeoutError with `what` after `deadline` seconds.

    For what a server does on its own and announces to nobody; everything else has an event to wait for.
    """
    end = time.monotonic() + deadline
    while not await holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not after {deadline:g} s: {what}")
        await asyncio.sleep(0.01)


async def _delete_groups(admin: AIOKafkaAdminClient) -> bool:
    """Whether no group is left. One with a killed member can be deleted once its session has timed out."""
    left = False
    for group, *_ in await admin.list_consumer_groups():
        node = await admin.find_coordinator(group)
        answer = await admin._send_request(DeleteGroupsRequest([group]), node)
        left = left or any(code != 0 for _, code in answer.results)
    return not left


@asynccontextmanager
async def _admin(bootstrap: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()
