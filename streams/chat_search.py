"""Searches the log for a chat: every partition of every topic that may have something of it, from start to end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from pydantic_core import from_json

from infra import topics
from schemas.delivery import Record, Topics, dead_letters
from services.audit.deleted import TopicState
from services.audit.naming import Named
from services.deadletters.policy import is_tombstone
from services.failures import Transient
from services.settings import Settings
from services.takeback.deletion import TOPICS
from streams import log_reading
from streams.runtime.offsets import end_offsets

MEMORIES = (Topics.MEMORY_COMMANDS, dead_letters(Topics.MEMORY_COMMANDS, "memories"))
"""Topics whose key is a user: commands on what came from a chat."""

DEAD_LETTERS = frozenset(name for name in TOPICS if name.endswith(".dlq"))
"""Topics where a record without a value may be a dead letter; in the others it is a tombstone."""


class ChatSearch:
    """services.audit.deleted.Log on Kafka."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def search(self, chat: str, progress: Callable[[int], None]) -> Sequence[TopicState]:
        """See Log. Topics that the cluster does not have are left out."""
        reader = log_reading.consumer(self._settings)
        try:
            await reader.start()
        except (KafkaError, OSError) as error:
            await reader.stop()
            raise Transient(
                f"Kafka at {self._settings.kafka} does not answer: {type(error).__name__}"
            ) from error
        try:
            there = await reader.topics()
            specs = [
                spec for spec in topics.wanted() if spec.name in (*TOPICS, *MEMORIES) and spec.name in there
            ]
            named = Named(chat)
            found = {spec.name: _Seen(spec.name, spec.partitions, chat, named) for spec in specs}
            partitions = [TopicPartition(spec.name, n) for spec in specs for n in range(spec.partitions)]
            starts = await reader.beginning_offsets(partitions)
            ends = await end_offsets(reader, partitions)
            wanted = {tp: end for tp, end in ends.items() if starts[tp] < end}
            if wanted:
                reader.assign(list(wanted))
            for tp in wanted:
                reader.seek(tp, starts[tp])
            looked = 0
            async for tp, record in log_reading.records(reader, wanted):
                looked += 1
                progress(looked)
                found[tp.topic].take(record)
        finally:
            await reader.stop()
        return [seen.state() for seen in found.values()]


@dataclass(slots=True)
class _Seen:
    topic: str
    partitions: int
    chat: str
    named: Named
    records: int = 0
    before: int = 0
    tombstones: int = 0
    emptied: int = 0
    open: dict[int, list[str]] = field(default_factory=dict)
    elsewhere: list[str] = field(default_factory=list)
    memories: int = 0
    forget: bool | None = None

    def take(self, record: Record) -> None:
        self.records += 1
        chat, value, partition = self.chat, record.value, record.partition
        if self.topic in MEMORIES:
            self.memories += (
                value is not None and self.named.inside(value) and _from_chat(_parsed(value), chat)
            )
        elif record.key == chat.encode():
            if value is not None:
                self.open.setdefault(partition, []).append(f"{partition}:{record.offset}")
                self._deletion(value)
            elif self.topic in DEAD_LETTERS and not is_tombstone(record):
                self.emptied += 1
            else:
                self.tombstones += 1
                self.before += len(self.open.pop(partition, ()))
        elif value is not None and self.named.inside(value) and _about(_parsed(value)) == chat:
            self.elsewhere.append(f"{partition}:{record.offset}")

    def _deletion(self, value: bytes) -> None:
        if self.topic == Topics.TURNS and b"deleted" in value:
            event = _parsed(value)
            if event.get("type") == "chat.deleted":
                # what is to be forgotten once stays so
                self.forget = bool(self.forget or event.get("forget_memories"))

    def state(self) -> TopicState:
        return TopicState(
            self.topic,
            self.partitions,
            self.records,
            self.before,
            self.tombstones,
            self.emptied,
            tuple(place for places in self.open.values() for place in places),
            tuple(self.elsewhere),
            self.memories,
            self.forget,
        )


def _parsed(value: bytes) -> dict[str, Any]:
    """A record's event; empty for what is none."""
    try:
        found = from_json(value)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _about(event: dict[str, Any]) -> Any:
    chat = event.get("chat")
    return chat.get("id") if isinstance(chat, dict) else event.get("chat_id")


def _from_chat(command: dict[str, Any], chat: str) -> bool:
    """Whether a command saves what came from a chat. One that takes back says nothing."""
    ops = command.get("ops")
    named = [command, *(ops if isinstance(ops, list) else ())]
    sources = [each.get("source") for each in named if isinstance(each, dict)]
    return any(isinstance(source, dict) and source.get("chat") == chat for source in sources)
