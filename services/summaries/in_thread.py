"""Keeps a summariser that computes for tens of milliseconds off the event loop, where other chats and heartbeats wait."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from schemas.chat import Level
from schemas.summaries import Summary, Tier
from services.summaries.port import Draft, SourceMessage, Summariser


class InThread:
    """A summariser that never waits for anything, in a thread of its own; one, since it computes in Python."""

    def __init__(self, inner: Summariser) -> None:
        self._inner = inner
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="summariser")

    @property
    def model(self) -> str:
        """The inner one's."""
        return self._inner.model

    async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
        """See Summariser."""
        return await self._run(self._inner.chunk(messages, level=level, budget=budget))

    async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
        """See Summariser."""
        return await self._run(self._inner.merge(sources, tier=tier, level=level, budget=budget))

    async def compress(self, source: Summary, *, level: Level, budget: int) -> Draft:
        """See Summariser."""
        return await self._run(self._inner.compress(source, level=level, budget=budget))

    async def close(self) -> None:
        """Let go of the thread; what it computes is finished first."""
        await self._inner.close()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self, call: Coroutine[Any, Any, Draft]) -> Draft:
        return await asyncio.get_running_loop().run_in_executor(self._thread, _result, call)


def _result(call: Coroutine[Any, Any, Draft]) -> Draft:
    """What a coroutine returns that waits for nothing. Raises RuntimeError for one that does."""
    try:
        call.send(None)
    except StopIteration as done:
        draft: Draft = done.value
        return draft
    call.close()
    raise RuntimeError("a summariser in a thread waited for something")
