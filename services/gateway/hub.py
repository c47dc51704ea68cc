"""The live channels of many chats and users over one Redis connection, shared by all streams of the process.

Hints can be missed while Redis is away or a reader is slow; a subscriber is told so and reads the chat again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from enum import Enum
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from services.gateway.tasks import ended
from services.state import keys

QUEUE = 64
"""Hints that wait for one slow reader; then they are dropped, and it is told."""

SILENCE = 15.0
"""Seconds without a word from Redis after which the connection is tried; after another such time it is given up."""

_CONTROL = "gateway:hub"
_PAUSES = (0.1, 0.5, 1.0, 2.0)
_LOG = logging.getLogger(__name__)


class Signal(Enum):
    """What a subscriber gets beside hints."""

    missed = "missed"
    closed = "closed"


class Subscription:
    """One reader of one channel."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[bytes | Signal] = asyncio.Queue()

    def put(self, item: bytes | Signal) -> None:
        """Never waits, never grows beyond QUEUE."""
        if isinstance(item, Signal) or self._queue.qsize() >= QUEUE:
            while not self._queue.empty():
                self._queue.get_nowait()
            item = item if isinstance(item, Signal) else Signal.missed
        self._queue.put_nowait(item)

    async def next(self, timeout: float) -> bytes | Signal | None:
        """The next hint or signal; None after `timeout` seconds without one.

        A hint is JSON: of a chat one of schemas/live.py, of a user a schemas.memories.MemoryChanged.
        """
        try:
            async with asyncio.timeout(timeout):
                return await self._queue.get()
        except TimeoutError:
            return None


class _Channel:
    def __init__(self) -> None:
        self.asked = False
        """Whether a connection was asked for it: by whoever came first, or by the next one where that was cancelled."""
        self.confirmed = asyncio.Event()
        self.readers: set[Subscription] = set()


@contextmanager
def _lost_connection_is_noticed() -> Iterator[None]:
    """The reader of the same connection notices as well, and connects again."""
    try:
        yield
    except (RedisError, OSError) as error:
        _LOG.debug("live channels: a command failed", extra={"error": type(error).__name__})


class Hub:
    """Started once, closed once. Closing ends all subscriptions."""

    def __init__(self, redis: Redis) -> None:
        self._redis = redis
        self._channels: dict[bytes, _Channel] = {}
        self._pubsub: PubSub | None = None
        self._commands = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def channels(self) -> int:
        """Channels that somebody reads."""
        return len(self._channels)

    def start(self) -> None:
        """Connects in the background, and again after every failure."""
        self._task = asyncio.create_task(self._run(), name="gateway-hub")

    async def close(self) -> None:
        """Tells every subscriber and lets go of the connection. May be called twice."""
        self._closed = True
        self._tell(Signal.closed)
        task, self._task = self._task, None
        await ended(task)

    def subscribe(self, chat: str, timeout: float) -> AbstractAsyncContextManager[Subscription]:
        """`listen` to the channel of a chat."""
        return self.listen(keys.channel(chat), timeout)

    @asynccontextmanager
    async def listen(self, channel_name: str, timeout: float) -> AsyncIterator[Subscription]:
        """From here on no hint is missed unnoticed. Raises TimeoutError where Redis does not confirm in time."""
        name = channel_name.encode()
        reader = Subscription()
        channel = self._channels.get(name)
        if channel is None:
            channel = self._channels[name] = _Channel()
        channel.readers.add(reader)
        try:
            async with asyncio.timeout(timeout):
                await self._subscribe(name, channel)
                await channel.confirmed.wait()
            if self._closed:
                reader.put(Signal.closed)
            yield reader
        finally:
            channel.readers.discard(reader)
            if not channel.readers and self._channels.get(name) is channel:
                del self._channels[name]
                await self._unsubscribe(name)

    async def _subscribe(self, name: bytes, channel: _Channel) -> None:
        """Without a connection nothing is sent: the next one subscribes to what is wanted then."""
        async with self._commands:
            if self._pubsub is not None and not channel.asked:
                with _lost_connection_is_noticed():
                    await self._pubsub.subscribe(name)
                    channel.asked = True

    async def _unsubscribe(self, name: bytes) -> None:
        async with self._commands:
            if self._pubsub is not None and name not in self._channels:
                with _lost_connection_is_noticed():
                    await self._pubsub.unsubscribe(name)

    async def _run(self) -> None:
        failures = 0
        while True:
            pubsub = self._redis.pubsub()
            try:
                async with self._commands:
                    wanted = dict(self._channels)
                    await pubsub.subscribe(_CONTROL, *wanted)
                    for channel in wanted.values():
                        channel.asked = True
                    self._pubsub = pubsub
                failures = 0
                await self._read(pubsub)
            except (RedisError, OSError, TimeoutError) as error:
                _LOG.warning("live channels: connection lost", extra={"error": type(error).__name__})
            finally:
                self._pubsub = None
                await pubsub.aclose()  # type: ignore[no-untyped-call]
            await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])
            failures += 1

    async def _read(self, pubsub: PubSub) -> None:
        silent = False
        while True:
            message = await pubsub.get_message(timeout=SILENCE)
            if message is not None:
                silent = False
                self._handle(message)
            elif silent:
                raise RedisConnectionError("silent")
            else:
                silent = True
                async with self._commands:
                    await pubsub.ping()

    def _handle(self, message: dict[str, Any]) -> None:
        channel = self._channels.get(message["channel"] or b"")
        if channel is None:
            return
        if message["type"] == "message":
            for reader in channel.readers:
                reader.put(message["data"])
        elif message["type"] == "subscribe":
            if channel.confirmed.is_set():
                # subscribed a second time: the connection was lost in between
                for reader in channel.readers:
                    reader.put(Signal.missed)
            channel.confirmed.set()

    def _tell(self, signal: Signal) -> None:
        for channel in self._channels.values():
            for reader in channel.readers:
                reader.put(signal)
