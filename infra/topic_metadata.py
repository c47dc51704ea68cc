"""What a cluster knows about its topics, their ids included, without creating one by asking.

aiokafka 0.14 stops at version 5 of the Metadata request; topic ids came with version 10 (KIP-516). This is
version 12, which Kafka speaks since 3.1 and Tansu as well. All topics are asked for, never a name: Tansu creates
a topic that a metadata request names, whatever the request says about automatic creation.
"""

from __future__ import annotations

from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.abstract import AbstractType
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Array,
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)


class _Uuid(AbstractType[UUID]):  # type: ignore[misc]
    @classmethod
    def encode(cls, value: UUID) -> bytes:
        return value.bytes

    @classmethod
    def decode(cls, data: BytesIO) -> UUID:
        return UUID(bytes=data.read(16))


def _topics_of(array: type[Array]) -> Any:
    return array(("topic_id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields))


class _MetadataResponse(Response):  # type: ignore[misc]
    API_KEY = 3
    API_VERSION = 12
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("isr", CompactArray(Int32)),
                        ("offline_replicas", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _MetadataRequestStruct(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 3
    API_VERSION = 12
    RESPONSE_TYPE = _MetadataResponse
    SCHEMA = Schema(
        ("topics", _topics_of(CompactArray)),
        ("allow_auto_topic_creation", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _MetadataRequest(Request[_MetadataRequestStruct]):  # type: ignore[misc]
    API_KEY = 3

    def build(self, request_struct_class: type[_MetadataRequestStruct]) -> _MetadataRequestStruct:
        return request_struct_class(None, False, False, {})


class BrokerTooOld(RuntimeError):
    """The broker does not tell the ids of its topics; Kafka does since 3.1."""


class Topic(NamedTuple):
    """A topic as the cluster describes it. `ready` = each partition has a leader."""

    id: UUID
    partitions: int
    internal: bool
    ready: bool


class Cluster(NamedTuple):
    """Number of brokers, and topics by name."""

    brokers: int
    topics: dict[str, Topic]


async def describe(admin: AIOKafkaAdminClient) -> Cluster:
    """All topics of the cluster. Raises BrokerTooOld, and aiokafka's KafkaError when it cannot be reached."""
    try:
        answer = await admin._send_request(_MetadataRequest())
    except NotImplementedError:
        raise BrokerTooOld("the broker does not tell topic ids (Kafka 3.1 or newer does)") from None
    topics = {}
    for error, name, topic_id, internal, partitions, *_ in answer.topics:
        ready = error == 0 and all(part[0] == 0 and part[2] >= 0 for part in partitions)
        topics[name] = Topic(topic_id, len(partitions), internal, ready)
    return Cluster(len(answer.brokers), topics)
