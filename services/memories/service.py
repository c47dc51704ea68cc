"""The memories agent's work: commands in, each user's saved memories and what became of each command out.

| the process dies | what follows |
|---|---|
| before the script | the command is delivered again and applied |
| after the script, before its result is published | the redelivery changes nothing, and finds the result to publish |
| after that, before the acknowledgement | the same id is published once more; readers skip it |

Two processes that have the same partition for a moment do no harm: what one of them has worked out is stored only if
nothing has changed since it was read, and never from an offset that has passed.
Shown by tests/integration/test_memories_outbox.py and tests/integration/test_memories_model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from redis.asyncio import Redis

from schemas.delivery import Position
from schemas.memories import MemoryChanged, MemoryCommand, MemoryRollback
from services.failures import Poison, Transient
from services.memories import store
from services.memories.cache import Cache, Kept
from services.memories.decide import Outcome, decide
from services.memories.state import Known, Mark
from services.memories.store import Reply, Wanted
from services.state import outbox
from services.tokens.counter import TokenCounter
from services.work import DONE, Work

_ATTEMPTS = 20
"""To decide a command before somebody else has written."""


class Delivered(NamedTuple):
    """A command and where it was read. `timestamp` is the record's, in milliseconds."""

    command: MemoryCommand
    position: Position
    timestamp: int


class Memories:
    """Applies commands on saved memories in the order given. `clock` tells when a result came about."""

    def __init__(self, redis: Redis, counter: TokenCounter, clock: Callable[[], datetime]) -> None:
        self._redis = redis
        self._counter = counter
        self._clock = clock
        self._cache = Cache()

    async def apply(self, batch: Sequence[Delivered]) -> list[Work | Poison]:
        """One result per command. Raises redis.RedisError or Transient where the store is away; all of it may then be
        run again."""
        results: list[Work | Poison] = [DONE] * len(batch)
        found: dict[str, dict[bytes, bytes]] = {}
        for places in _rounds(batch):
            replies = await self._round([batch[place] for place in places])
            for place, reply in zip(places, replies, strict=True):
                results[place] = self._work(batch[place], reply, found)
        self._confirming(batch, results, found)
        return results

    async def preview(self, command: MemoryCommand) -> MemoryChanged:
        """What would become of a command now. Nothing is stored. Raises redis.RedisError, and Transient where others write
        all the time."""
        [known] = await store.load(self._redis, [Wanted(command.user_id, (command,))])
        return decide(command, known, self._counter, self._clock()).result

    async def _round(self, batch: Sequence[Delivered]) -> list[Reply]:
        """Apply commands of different users."""
        replies: list[Reply | None] = [None] * len(batch)
        for _ in range(_ATTEMPTS):
            todo = [place for place, reply in enumerate(replies) if reply is None]
            if not todo:
                break
            commands = [batch[place].command for place in todo]
            wanted = [
                Wanted(command.user_id, (command,), command.id, self._cache.get(command.user_id))
                for command in commands
            ]
            outcomes = [
                self._outcome(command, known)
                for command, known in zip(commands, await store.load(self._redis, wanted), strict=True)
            ]
            calls = [
                store.call(batch[place].command, batch[place].position, outcome)
                for place, outcome in zip(todo, outcomes, strict=True)
            ]
            replies_now = await store.write(self._redis, calls)
            for place, outcome, reply in zip(todo, outcomes, replies_now, strict=True):
                self._keep(batch[place], outcome, reply)
                if reply.status == "caps":
                    raise RuntimeError(f"a scope would hold more than it may: {reply.detail.decode()}")
                if reply.status != "raced":
                    replies[place] = reply
        done = [reply for reply in replies if reply is not None]
        if len(done) < len(replies):
            raise Transient("another process writes to the same memories")
        return done

    def _outcome(self, command: MemoryCommand, known: Known) -> Outcome:
        if known.result is not None:
            return store.unchanged(known)
        return decide(command, known, self._counter, self._clock())

    def _keep(self, delivered: Delivered, outcome: Outcome, reply: Reply) -> None:
        user, position = delivered.command.user_id, delivered.position
        if reply.status == "applied":
            mark = Mark(outcome.result.version, position.epoch, position.offset)
            self._cache.put(user, Kept(mark, outcome.edits.scopes))
        elif reply.status == "raced":
            self._cache.drop(user)

    def _work(
        self, delivered: Delivered, reply: Reply, found: dict[str, dict[bytes, bytes]]
    ) -> Work | Poison:
        """`found`: outbox entries by user and field that a command of the batch publishes; this one adds its own."""
        command, position, _ = delivered
        if reply.status == "partition":
            return Poison(
                f"key: the user's earlier commands are on partition {reply.detail.decode()}, this one is on "
                f"{position.partition}: two producers hash keys differently (use murmur2)"
            )
        known = found.setdefault(command.user_id, {})
        publish = outbox.outgoing(value for field, value in reply.outbox.items() if field not in known)
        known |= reply.outbox
        # a stale one took effect so long ago that its result is forgotten
        return Work(publish, None, reply.status != "applied")

    def _confirming(
        self,
        batch: Sequence[Delivered],
        results: list[Work | Poison],
        found: dict[str, dict[bytes, bytes]],
    ) -> None:
        """One trim for the batch, at its last work: it runs when all that the batch publishes is confirmed."""
        works = [place for place, result in enumerate(results) if isinstance(result, Work)]
        if not works:
            return
        fields = {user: list(entries) for user, entries in found.items() if entries}
        rollbacks = [
            (command.chat_id, command.id)
            for command in (batch[place].command for place in works)
            if isinstance(command, MemoryRollback)
        ]

        async def confirmed() -> None:
            if rollbacks:
                await store.settled(self._redis, rollbacks)
            if fields:
                await store.trim(self._redis, fields)

        last = results[works[-1]]
        assert isinstance(last, Work)
        results[works[-1]] = Work(last.publish, confirmed, last.repeated)


def _rounds(batch: Sequence[Delivered]) -> Iterator[list[int]]:
    """Places of the batch, such that each user occurs once in a round, and a user's commands keep their order."""
    left = list(range(len(batch)))
    while left:
        users: set[str] = set()
        later: list[int] = []
        this: list[int] = []
        for place in left:
            user = batch[place].command.user_id
            (later if user in users else this).append(place)
            users.add(user)
        yield this
        left = later
