"""Why Faust's own acknowledgements are not used: it commits past a record that is not done.

Offset 0 is in flight, 1 to 4 are acknowledged: Faust 0.15.3 would commit 5, and after a kill 0 never comes back
(`faust.transport.consumer.Consumer._new_offset`). The first test pins that down. When it fails, an upgrade of Faust
has changed it: read the new `_new_offset`, then decide whether streams/runtime/consumer.py is still needed.
"""

from __future__ import annotations

import faust
import pytest
from faust.transport.drivers.aiokafka import Consumer as FaustConsumer
from faust.types import TP

from schemas.delivery import Record
from services.metrics import Metrics
from services.settings import Settings
from services.work import DONE, Work
from streams.runtime import app as faust_app
from streams.runtime.agent import Agent, AgentSpec, Keyed
from streams.runtime.consumer import Consumer
from streams.runtime.publisher import Publisher

CHANGED = (
    "this version of Faust no longer commits past unfinished records (or does it elsewhere): "
    "look again at what streams/runtime/consumer.py overrides"
)


@pytest.fixture
async def consumer() -> Consumer:
    """Ours, not connected to anything."""
    app = faust_app.create("afterturn-commit", Settings())
    app.finalize()
    created = app.consumer
    assert isinstance(created, Consumer)
    return created


TURNS = TP("chat.turns.v1", 0)


async def test_faust_commits_past_offset_0(consumer: Consumer) -> None:
    assert faust.__version__ == "0.15.3", CHANGED
    consumer._committed_offset[TURNS] = None
    consumer._acked[TURNS] = [1, 2, 3, 4]
    offset = FaustConsumer._new_offset(consumer, TURNS)
    assert offset == 5, CHANGED


async def test_faust_commits_past_the_first_record_after_a_commit(consumer: Consumer) -> None:
    # 10 is what the group has committed: record 10 is next, and in flight
    consumer._committed_offset[TURNS] = 10
    consumer._acked[TURNS] = [11, 12]
    assert FaustConsumer._new_offset(consumer, TURNS) == 13, CHANGED


async def test_ours_waits_for_it(consumer: Consumer) -> None:
    acks = consumer.acks_of(TURNS)
    for offset in range(5):
        acks.take(offset)
    acks.done([1, 2, 3, 4])
    assert consumer._new_offset(TURNS) is None
    assert list(consumer._filter_tps_with_pending_acks()) == []
    acks.done([0])
    assert consumer._new_offset(TURNS) == 5
    assert list(consumer._filter_tps_with_pending_acks()) == [TURNS]
    assert consumer._filter_committable_offsets([TURNS]) == {TURNS: 5}


async def test_ours_commits_nothing_for_a_partition_without_records(consumer: Consumer) -> None:
    assert consumer._new_offset(TURNS) is None
    assert consumer._filter_committable_offsets([TURNS]) == {}


async def test_acks_of_an_assignment_end_with_it(consumer: Consumer, monkeypatch: pytest.MonkeyPatch) -> None:
    committed: list[dict[TP, int]] = []

    async def revoked(tps: set[TP]) -> None:
        committed.append(consumer._filter_committable_offsets(consumer._filter_tps_with_pending_acks()))

    monkeypatch.setattr(consumer, "_on_partitions_revoked", revoked)
    acks = consumer.acks_of(TURNS)
    acks.take(0)
    acks.take(1)
    acks.done([0])
    await consumer.on_partitions_revoked({TURNS})
    # what is done is committed while the partition is still ours ...
    assert committed == [{TURNS: 1}]
    # ... and one that ends later, with the partition elsewhere, commits nothing
    acks.done([1])
    assert list(consumer._filter_tps_with_pending_acks()) == []
    # assigned again, it starts over from the committed offset
    consumer.acks_of(TURNS).take(1)


async def test_records_are_not_tracked_by_faust() -> None:
    spec = AgentSpec("toy", TURNS.topic, Keyed(_done))
    agent = Agent(spec, Settings(), Publisher(Settings()), Metrics("toy"))
    [faust_agent] = agent.app.agents.values()
    # no message is made of them; and what the fetcher takes for gaps between offsets is not kept
    assert not faust_agent.channel.acks


async def _done(record: Record) -> Work:
    return DONE
