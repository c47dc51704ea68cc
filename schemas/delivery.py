"""Where a record came from and what is to be published: plain values between streams and services."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Topics:
    """Names of the topics; partitions and retention are in infra/kafka/topics.yaml."""

    TURNS = "chat.turns.v1"
    CHUNKS = "chat.chunks.v1"
    SUMMARIES = "chat.summaries.v1"
    USAGE = "credits.usage.v1"
    MEMORY_COMMANDS = "memory.commands.v1"
    MEMORY_CHANGES = "memory.changes.v1"


def dead_letters(topic: str, agent: str) -> str:
    """Name of the topic where `agent` puts the records of `topic` that it cannot handle."""
    return f"{topic}.{agent}.dlq"


class Position(NamedTuple):
    """A place in a log. `epoch` identifies the log itself, so that offset 0 of a new one is not taken for a repeat."""

    epoch: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record to publish. `key` decides the partition (murmur2); without a value it is a tombstone: what the topic has
    under this key is to go."""

    topic: str
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


class Record(NamedTuple):
    """A record as read from a topic, its bytes untouched. `timestamp` is in milliseconds since 1970 (UTC)."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp: int
