"""Memories: the only writer of saved memories; applies commands, tells what became of each."""

from __future__ import annotations

from collections.abc import Sequence

from schemas.delivery import Position, Record, Topics
from schemas.memories import MEMORY_COMMAND
from services.failures import Poison
from services.memories.service import Delivered, Memories
from services.memories.store import AGENT
from services.work import DONE, Work
from streams.runtime.agent import AgentSpec, Batched
from streams.runtime.decoding import check_key, decode


def agent(memories: Memories, epoch: str, limit: int) -> AgentSpec:
    """`epoch` identifies the log of `memory.commands.v1`; `limit` is the most records handled together."""

    def delivered(record: Record) -> Delivered | Work | Poison:
        if record.value is None:
            # a tombstone: whoever wrote it wants what is in the log forgotten, and nothing done
            return DONE
        try:
            command = decode(MEMORY_COMMAND, record)
            check_key(record, command.user_id, "user_id")
        except Poison as poison:
            return poison
        return Delivered(command, Position(epoch, record.partition, record.offset), record.timestamp)

    async def handle(records: Sequence[Record]) -> Sequence[Work | Poison]:
        decoded = [delivered(record) for record in records]
        done = iter(await memories.apply([item for item in decoded if isinstance(item, Delivered)]))
        return [next(done) if isinstance(item, Delivered) else item for item in decoded]

    return AgentSpec(AGENT, Topics.MEMORY_COMMANDS, Batched(handle, limit))
