"""A fork waits for its source, which is on another partition; how long, is decision 0020."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from schemas.delivery import Position
from schemas.turns import ChatForked
from services.failures import Poison
from services.state import deleted, keys
from services.takeback import fork, reading
from services.takeback.memory import Copy
from services.takeback.reading import Ask
from services.window.incoming import Delivered

FORK_WAIT = 60.0
"""Seconds after its record's time, up to which a fork waits for its source to reach the turn. The partition waits with it,
and with it the turns of the new chat. Forks that were written together wait together: no partition stands still for
longer, however many of them are wrong. It is longer than a group needs to give the partitions of a worker that died to
another one: 41 s were seen, on a busy machine and with kills that overlap."""

FORK_POLL = 0.05
"""Seconds between two looks."""


class Sources:
    """Chats that are to be forked. `clock` gives seconds since 1970, `sleep` takes them."""

    def __init__(
        self,
        ask: Ask,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._sleep = sleep

    async def of(self, delivered: Delivered, event: ChatForked, begun: float) -> tuple[Copy, int]:
        """The source as soon as it has the turn, and the number of the first message that the fork leaves out.

        `begun`: when the fork's batch was, in seconds since 1970. Raises Poison where the turn does not come.
        """
        position, timestamp = delivered.position, delivered.timestamp
        # a record from a clock that is ahead waits no longer than one that was written just now
        until = min(timestamp / 1000, begun) + FORK_WAIT
        while True:
            late = self._clock() >= until
            found = await self._look(event, position)
            if found is not None:
                return found
            if late:
                raise _unknown(event)
            await self._sleep(FORK_POLL)

    async def _look(self, event: ChatForked, position: Position) -> tuple[Copy, int] | None:
        name, k = event.source.chat, keys.ChatKeys.of(event.source.chat)
        (mark, epoch, partition), turn = await self._ask(
            [("HMGET", k.window, deleted.MARK, "ep", "pa"), ("HGET", k.turns, event.source.turn)]
        )
        if mark is not None:
            raise Poison("source.chat: was deleted", keep=False)
        if turn is not None:
            copied = await fork.copy(self._ask, name)
            found = await reading.turn(copied.ask, name, event.source.turn)
            if found is not None:
                return copied, found.end
        if (epoch, partition) == (position.epoch.encode(), b"%d" % position.partition):
            # on the fork's own partition: nothing of it comes before the fork is done
            raise _unknown(event)
        return None


def _unknown(event: ChatForked) -> Poison:
    return Poison(f"source.turn: the chat {event.source.chat} has no turn {event.source.turn}")
