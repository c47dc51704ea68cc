"""Reads, replays and drops dead letters. Those of a deleted chat are before a tombstone of its key, and gone.

| the process dies | what follows |
|---|---|
| before a replayed record is confirmed | nothing has happened |
| after that, before it is marked | it is listed, and replaying it again takes effect once: its ids are the same |

Shown by tests/integration/test_deadletters.py.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from redis.asyncio import Redis

from infra import topics
from services.deadletters import policy
from services.deadletters.handled import Handled, How
from services.deadletters.policy import DeadLetter, Place, ReplayPolicy, Route, Selection
from services.failures import Transient
from services.settings import Settings
from streams import log_reading
from streams.log_reading import records
from streams.runtime.offsets import end_offsets
from streams.runtime.publisher import Publisher, client_options

BATCH = 50
"""Dead letters that are marked together, once they are published: so many may be replayed again after a crash."""

Progress = Callable[[int], None]
"""Told the number of dead letters looked at so far."""


class Listed(NamedTuple):
    """A dead letter, and what was done with it (empty: nothing yet)."""

    letter: DeadLetter
    handled: str


class Done(NamedTuple):
    """What became of a selection: ids dealt with, (id, reason) of those refused, ids that were asked for and not found."""

    ids: tuple[str, ...]
    refused: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]


class DeadLetters:
    """All topics of dead letters of a cluster; use `open_dead_letters`."""

    def __init__(
        self, settings: Settings, handled: Handled, publisher: Publisher, routes: Sequence[Route]
    ) -> None:
        self.routes = tuple(routes)
        self._settings = settings
        self._handled = handled
        self._publisher = publisher

    async def find(
        self, selection: Selection, limit: int | None, progress: Progress | None = None
    ) -> AsyncGenerator[Listed, None]:
        """The selected ones, each partition in order. What arrives after the call is not among them."""
        async with self._reading(selection) as reading:
            found = 0
            async for listed in reading.listed(selection, progress):
                if limit is not None and found >= limit:
                    return
                found += 1
                yield listed

    async def replay(
        self, selection: Selection, limit: int | None, rules: ReplayPolicy, progress: Progress | None = None
    ) -> Done:
        """Publish key and bytes as they are to the topic they came from, confirmed, then remember it.

        `limit` counts what is replayed. Raises Transient where the broker does not confirm, redis.RedisError.
        """

        async def forward(letter: DeadLetter) -> None:
            record = letter.record
            headers = policy.replay_headers(letter)
            await self._publisher.forward(letter.route.topic, record.key, record.value, headers)

        return await self._deal(selection, limit, How.replayed, rules.refusal, forward, progress)

    async def drop(self, selection: Selection, limit: int | None, progress: Progress | None = None) -> Done:
        """Remember that nothing is to be done with these."""

        async def leave(_: DeadLetter) -> None:
            return None

        return await self._deal(selection, limit, How.dropped, lambda _: None, leave, progress)

    async def _deal(
        self,
        selection: Selection,
        limit: int | None,
        how: How,
        refusal: Callable[[DeadLetter], str | None],
        act: Callable[[DeadLetter], Any],
        progress: Progress | None,
    ) -> Done:
        ids: list[str] = []
        refused: list[tuple[str, str]] = []
        missing = set(selection.places or ())
        async with self._reading(selection) as reading:
            waiting: list[Place] = []

            async def mark() -> None:
                await self._handled.mark(waiting, how, datetime.now(UTC), reading.starts)
                waiting.clear()

            try:
                async for letter, _ in reading.listed(selection, progress):
                    if limit is not None and len(ids) >= limit:
                        missing.clear()
                        break
                    missing.discard(letter.place)
                    reason = refusal(letter)
                    if reason is not None:
                        refused.append((letter.id, reason))
                        continue
                    await act(letter)
                    ids.append(letter.id)
                    waiting.append(letter.place)
                    if len(waiting) >= BATCH:
                        await mark()
            finally:
                # also when the next one could not be published: these were
                await mark()
        return Done(
            tuple(ids), tuple(refused), tuple(policy.name(place, self.routes) for place in sorted(missing))
        )

    @asynccontextmanager
    async def _reading(self, selection: Selection) -> AsyncIterator[_Reading]:
        consumer = log_reading.consumer(self._settings)
        await consumer.start()
        try:
            yield await _Reading.start(
                consumer, self._handled, selection.routes(self.routes), selection.places
            )
        finally:
            await consumer.stop()


class _Reading:
    """One pass over topics of dead letters, from the first to the last record there was at its start."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        handled: Handled,
        routes: dict[str, Route],
        starts: dict[tuple[str, int], int],
        ends: dict[TopicPartition, int],
        tombstones: dict[tuple[TopicPartition, bytes], int],
    ) -> None:
        self.starts = starts
        self._consumer = consumer
        self._handled = handled
        self._routes = routes
        self._ends = ends
        self._tombstones = tombstones

    @classmethod
    async def start(
        cls,
        consumer: AIOKafkaConsumer,
        handled: Handled,
        routes: Sequence[Route],
        places: frozenset[Place] | None,
    ) -> _Reading:
        by_topic = {route.dead_letters: route for route in routes}
        partitions = [
            TopicPartition(spec.name, number)
            for spec in topics.wanted()
            if spec.name in by_topic
            for number in range(spec.partitions)
        ]
        starts = await consumer.beginning_offsets(partitions) if partitions else {}
        ends = await end_offsets(consumer, partitions)
        first, last = dict(starts), dict(ends)
        if places is not None:
            # from the first wanted one to the last, in the partitions that have some
            for tp in partitions:
                offsets = [offset for topic, number, offset in places if (topic, number) == tp]
                first[tp] = max([starts[tp], *([min(offsets)] if offsets else [ends[tp]])])
                ends[tp] = min(ends[tp], max(offsets, default=-1) + 1)
        wanted = {tp: end for tp, end in ends.items() if first[tp] < end}
        if wanted:
            consumer.assign(list(wanted))
        tombstones: dict[tuple[TopicPartition, bytes], int] = {}
        _seek(consumer, wanted, first)
        # what is gone is known at the end only
        async for tp, record in records(consumer, {tp: last[tp] for tp in wanted}):
            if record.key is not None and policy.is_tombstone(record):
                tombstones[tp, record.key] = record.offset
        _seek(consumer, wanted, first)
        return cls(
            consumer, handled, by_topic, {tuple(tp): at for tp, at in starts.items()}, wanted, tombstones
        )

    async def listed(self, selection: Selection, progress: Progress | None) -> AsyncIterator[Listed]:
        """The selected ones."""
        marks = {tp: await self._handled.of(tp.topic, tp.partition) for tp in self._ends}
        seen = 0
        async for tp, record in records(self._consumer, self._ends):
            seen += 1
            if progress is not None:
                progress(seen)
            if record.key is not None and record.offset <= self._tombstones.get((tp, record.key), -1):
                continue
            letter = policy.read(self._routes[tp.topic], record)
            how = marks[tp].get(record.offset, "")
            if selection.takes(letter, bool(how)):
                yield Listed(letter, how)


def _seek(
    consumer: AIOKafkaConsumer, partitions: Iterable[TopicPartition], first: Mapping[TopicPartition, int]
) -> None:
    for tp in partitions:
        consumer.seek(tp, first[tp])


@asynccontextmanager
async def open_dead_letters(settings: Settings) -> AsyncIterator[DeadLetters]:
    """Connect. Raises Transient where Kafka does not answer or has no topics of dead letters."""
    async with AsyncExitStack() as opened:
        connection = client_options(settings)
        try:
            epochs = await topics.read_epochs(connection.pop("bootstrap_servers"), **connection)
        except (KafkaError, OSError) as error:
            raise Transient(f"Kafka at {settings.kafka} does not answer: {type(error).__name__}") from error
        routes = policy.routes(spec.name for spec in topics.wanted())
        missing = [route.dead_letters for route in routes if route.dead_letters not in epochs]
        if missing:
            raise Transient(f"topics are missing, run `afterturn topics apply`: {', '.join(missing)}")
        redis = Redis.from_url(settings.redis, socket_timeout=30, socket_connect_timeout=5)
        opened.push_async_callback(redis.aclose)
        publisher = Publisher(settings)
        await publisher.start()
        opened.push_async_callback(publisher.stop)
        yield DeadLetters(settings, Handled(redis, epochs), publisher, routes)
