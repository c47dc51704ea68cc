"""A fork waits for its source, which is on another partition, for as long as that has not come to the fork's time and
comes nearer (docs/decisions/0020).

The partition waits with it. Forks that wait for each other's partitions do not stand for ever: the one that was written
first is given up where the other partition stands at a later one, because all that it can wait for lies before that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from schemas.delivery import Position
from schemas.turns import ChatForked
from services.failures import Poison
from services.state import applied, deleted, keys
from services.state.applied import Progress, Waiting
from services.takeback import fork, reading
from services.takeback.memory import Copy
from services.takeback.reading import Ask
from services.window.incoming import Delivered

FORK_WAIT = 60.0
"""Seconds without progress of the source's partition after which a fork is given up. It is longer than a group needs to
give the partitions of a worker that died to another one: 41 s were seen, on a busy machine and with kills that overlap."""

FORK_GRACE = 1_000
"""Milliseconds that the clocks of producers and workers may differ by."""

FORK_POLL = 0.05
"""Seconds between two looks."""

PartitionOf = Callable[[str], Awaitable[int | None]]
"""The partition of the turns on which a chat nobody knows yet has its events; None where that cannot be told."""


async def nowhere(chat: str) -> int | None:
    """Tells no partition: forks of chats that are not known wait for FORK_WAIT."""
    return None


class Sources:
    """Chats that are to be forked. `clock` gives seconds since 1970, `sleep` takes them."""

    def __init__(
        self,
        ask: Ask,
        partition_of: PartitionOf,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._ask = ask
        self._partition_of = partition_of
        self._clock = clock
        self._sleep = sleep
        self._seen: dict[tuple[str, int], tuple[Progress, float]] = {}
        """What was last found of a partition, and since when: forks that follow each other wait for a dead one once."""

    async def of(self, delivered: Delivered, event: ChatForked, begun: float) -> tuple[Copy, int]:
        """The source as soon as it has the turn, and the number of the first message that the fork leaves out.

        `begun`: when the fork's batch was, in seconds since 1970. Raises Poison where the turn does not come.
        """
        position = delivered.position
        # a record from a clock that is ahead waits no longer than one that was written just now
        at = min(delivered.timestamp, int(begun * 1000))
        standing: Waiting | None = None
        before: Progress | None = None
        try:
            while True:
                source = await self._partition(event.source.chat, position)
                # asked before the source is looked at: what is applied by then is found
                progress = await self._progress(position.epoch, source)
                since = max(at / 1000, self._since(position.epoch, source, progress))
                late = self._clock() - since >= FORK_WAIT
                found = await self._look(event)
                if found is not None:
                    return found
                if source == position.partition or late or _passed(progress, at, position, source):
                    raise Poison(f"source.turn: the chat {event.source.chat} has no turn {event.source.turn}")
                if standing is None or progress != before:
                    standing, before = Waiting(at, standing.steps + 1 if standing else 0), progress
                    await self._ask([applied.mark(position.epoch, position.partition, standing)])
                await self._sleep(FORK_POLL)
        finally:
            if standing is not None:
                await self._ask([applied.unmark(position.epoch, position.partition)])

    async def _partition(self, chat: str, position: Position) -> int | None:
        [(epoch, partition)] = await self._ask([("HMGET", keys.ChatKeys.of(chat).window, "ep", "pa")])
        if epoch == position.epoch.encode():
            return int(partition)
        return await self._partition_of(chat)

    async def _progress(self, epoch: str, partition: int | None) -> Progress:
        if partition is None:
            return Progress(None, None)
        [answer] = await self._ask([applied.asked(epoch, partition)])
        return applied.progress(answer)

    def _since(self, epoch: str, partition: int | None, progress: Progress) -> float:
        if partition is None:
            return 0.0
        known, since = self._seen.get((epoch, partition), (None, 0.0))
        if known != progress:
            since = self._clock()
            self._seen[epoch, partition] = progress, since
        return since

    async def _look(self, event: ChatForked) -> tuple[Copy, int] | None:
        name, k = event.source.chat, keys.ChatKeys.of(event.source.chat)
        [mark], turn = await self._ask(
            [("HMGET", k.window, deleted.MARK), ("HGET", k.turns, event.source.turn)]
        )
        if mark is not None:
            raise Poison("source.chat: was deleted", keep=False)
        if turn is not None:
            copied = await fork.copy(self._ask, name)
            found = await reading.turn(copied.ask, name, event.source.turn)
            if found is not None:
                return copied, found.end
        return None


def _passed(progress: Progress, at: int, position: Position, source: int | None) -> bool:
    """Whether all that was written to the source's partition before the fork is applied."""
    if progress.applied is not None and progress.applied >= at + FORK_GRACE:
        return True
    # without the grace: two forks that stand at each other, each within it, would stand for ever
    return (
        progress.fork is not None
        and source is not None
        and (progress.fork.at, source) > (at, position.partition)
    )
