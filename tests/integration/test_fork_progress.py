"""Forks between the partitions of two workers: each says how far it is, and the other's forks go by that (W8)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis.asyncio import Redis

from infra import topics
from schemas.delivery import Outgoing, Topics
from schemas.turns import TURN_EVENT
from services.metrics import Metrics
from services.takeback import source
from services.window.service import Window
from services.window.store import ChunkSize
from streams import window
from streams.runtime.agent import Agent
from streams.runtime.publisher import Publisher, partition_of
from tests.integration.agents import publisher, settings
from tests.integration.takeback_state import recorded
from tests.stack import Broker, until


class Noting:
    """A publisher that remembers the chats of dead letters."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self.dead: list[str] = []

    async def publish(self, records: Sequence[Outgoing]) -> None:
        await self._publisher.publish(records)

    async def forward(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]]
    ) -> None:
        await self._publisher.forward(topic, key, value, headers)
        self.dead.append((key or b"").decode())


def event(chat: str, body: dict[str, Any]) -> Outgoing:
    value = TURN_EVENT.validate_python({"chat": {"id": chat}, **body}).model_dump_json(exclude_none=True)
    return Outgoing(Topics.TURNS, chat.encode(), value.encode())


def chats_on(partition: int, partitions: int) -> Iterator[str]:
    names = (f"c{number}" for number in range(10_000))
    return (name for name in names if partition_of(name.encode(), partitions) == partition)


@pytest.mark.rule("W8")
async def test_wrong_forks_between_partitions_are_refused_and_right_ones_made(
    broker: Broker, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    # only what the workers say of each other's partitions ends a wait
    monkeypatch.setattr(source, "FORK_WAIT", 1e9)
    epoch = (await topics.read_epochs(broker.bootstrap))[Topics.TURNS]
    async with AsyncExitStack() as opened:
        publishing = await opened.enter_async_context(publisher(broker))

        async def of(chat: str) -> int:
            return await publishing.partition(Topics.TURNS, chat.encode())

        noting = Noting(publishing)
        agents: list[Agent] = []
        for _ in range(2):
            service = Window(redis, len, ChunkSize(), partition_of=of)
            spec = window.agent(service, redis, epoch, 100)
            agents.append(Agent(spec, settings(broker), noting, Metrics("window")))
            await agents[-1].start()
            opened.push_async_callback(agents[-1].stop)

        async def shared() -> bool:
            mine = [{tp.partition for tp in agent.consumer.assignment()} for agent in agents]
            return all(agent.assigned for agent in agents) and all(mine) and mine[0].isdisjoint(mine[1])

        await until(shared, "both workers have partitions", 60)
        count = len(await publishing._producer.partitions_for(Topics.TURNS))  # type: ignore[union-attr]
        ours, theirs = (
            chats_on(min(tp.partition for tp in agent.consumer.assignment()), count) for agent in agents
        )
        there, gone, nobody, right, *wrong = (
            next(theirs), next(ours), next(theirs), next(ours), next(ours), next(theirs), next(ours)
        )  # fmt: skip
        fork = "chat.forked"
        await publishing.publish(
            [
                event(there, recorded("t1", [("m1", "asks"), ("m2", "says")], "r1")),
                event(wrong[0], {"type": fork, "id": "f1", "source": {"chat": nobody, "turn": "t1"}}),
                event(wrong[1], {"type": fork, "id": "f2", "source": {"chat": gone, "turn": "t1"}}),
                event(wrong[2], {"type": fork, "id": "f3", "source": {"chat": there, "turn": "t2"}}),
                event(right, {"type": fork, "id": "f4", "source": {"chat": there, "turn": "t1"}}),
            ]
        )

        async def forked() -> bool:
            return bool(await redis.llen(f"{{c:{right}}}:to"))

        await until(forked, "the right fork is made, behind the wrong ones", 60)

        async def refused() -> bool:
            return sorted(noting.dead) == sorted(wrong)

        await until(refused, "the wrong forks are dead letters", 60)
