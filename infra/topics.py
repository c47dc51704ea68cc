"""The topics of infra/kafka/topics.yaml: created when missing, checked when there, never by side effect.

A log has an identity. The epoch of a topic, which watermarks and source offsets carry, is the id that the
broker gave the topic when it was created: a topic that was deleted and made again, by whomever, or one of a new
memory-only broker, has another one, so that its offset 0 is not taken for a redelivery. Any number of `apply`
may run at the same time: the broker creates a topic once. docs/decisions/0001-topic-ids-are-epochs.md tells why
there is no record of epochs of our own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, NamedTuple

import yaml
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code

from infra import topic_metadata
from schemas.delivery import dead_letters

_DAY_MS = 86_400_000
_READY_DEADLINE_S = 30.0
_POLL_S = 0.02


class TopicSpec(NamedTuple):
    """A topic as it should be. `replication` is an upper bound; `config` as Kafka names it."""

    name: str
    partitions: int
    replication: int
    config: dict[str, str]


class Report(NamedTuple):
    """Names of the topics that `apply` created, and of those that were there already."""

    created: tuple[str, ...]
    existing: tuple[str, ...]


class TopicsDiffer(RuntimeError):
    """A topic exists with another number of partitions, or could not be created; the message names it."""


def wanted() -> tuple[TopicSpec, ...]:
    """Every topic of topics.yaml, each followed by its dead letters where it has a reader of ours."""
    plan = yaml.safe_load((files("infra.kafka") / "topics.yaml").read_text())
    specs = []
    for name, topic in plan["topics"].items():
        kinds = [(name, topic["retention"], plan["max_record_bytes"])]
        if "agent" in topic:
            letters = dead_letters(name, topic["agent"])
            kinds.append((letters, plan["dead_letter_retention"], plan["max_dead_letter_bytes"]))
        for each, days, size in kinds:
            retention = -1 if days == "forever" else days * _DAY_MS
            config = {
                "cleanup.policy": "delete",
                "retention.ms": str(retention),
                "max.message.bytes": str(size),
            }
            specs.append(TopicSpec(each, plan["partitions"], plan["replication"], config))
    return tuple(specs)


async def apply(bootstrap: str, **security: Any) -> Report:
    """Create what is missing, and return when each partition of each topic has a leader.

    `security` are aiokafka's client arguments (security_protocol, ssl_context, sasl_*). Raises TopicsDiffer,
    BrokerTooOld, aiokafka's KafkaError when the broker cannot be reached, TimeoutError after 30 s.
    """
    specs = wanted()
    async with _admin(bootstrap, security) as admin:
        cluster = await topic_metadata.describe(admin)
        _check(specs, cluster)
        missing = [spec for spec in specs if spec.name not in cluster.topics]
        created = await _create(admin, missing, cluster.brokers)
        _check(specs, await _ready(admin, {spec.name for spec in specs}))
    return Report(created, tuple(spec.name for spec in specs if spec.name not in created))


async def read_epochs(bootstrap: str, **security: Any) -> dict[str, str]:
    """Epoch of every topic of the cluster by its name. `security` and errors as for `apply`."""
    async with _admin(bootstrap, security) as admin:
        cluster = await topic_metadata.describe(admin)
    return {name: str(topic.id) for name, topic in cluster.topics.items() if not topic.internal}


async def _create(admin: AIOKafkaAdminClient, specs: list[TopicSpec], brokers: int) -> tuple[str, ...]:
    if not specs:
        return ()
    answer = await admin.create_topics(
        [
            NewTopic(spec.name, spec.partitions, min(spec.replication, brokers), topic_configs=spec.config)
            for spec in specs
        ]
    )
    created = []
    for name, code, message in answer.topic_errors:
        error = for_code(code)
        if code == 0:
            created.append(name)
        elif (
            error is not TopicAlreadyExistsError
        ):  # then another `apply` was quicker, and it is checked below
            raise TopicsDiffer(f"{name} could not be created: {message or error.__name__}")
    return tuple(created)


async def _ready(admin: AIOKafkaAdminClient, names: set[str]) -> topic_metadata.Cluster:
    end = time.monotonic() + _READY_DEADLINE_S
    while True:
        cluster = await topic_metadata.describe(admin)
        waiting = sorted(
            name for name in names if name not in cluster.topics or not cluster.topics[name].ready
        )
        if not waiting:
            return cluster
        if time.monotonic() > end:
            raise TimeoutError(f"no leader after {_READY_DEADLINE_S:g} s: {', '.join(waiting)}")
        await asyncio.sleep(_POLL_S)


def _check(specs: tuple[TopicSpec, ...], cluster: topic_metadata.Cluster) -> None:
    wrong = [
        f"{spec.name} has {cluster.topics[spec.name].partitions} partitions, not {spec.partitions}"
        for spec in specs
        if spec.name in cluster.topics and cluster.topics[spec.name].partitions != spec.partitions
    ]
    if wrong:
        raise TopicsDiffer("; ".join(wrong) + ": a chat's events would lose their order, nothing was changed")


@asynccontextmanager
async def _admin(bootstrap: str, security: dict[str, Any]) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap, client_id="afterturn-topics", **security)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()
