"""Tasks that run as long as the gateway does."""

from __future__ import annotations

import asyncio

_CANCEL_AGAIN_S = 0.1


async def ended(task: asyncio.Task[None] | None) -> None:
    """Cancelled, and over."""
    while task is not None and not task.done():
        # once may not be enough: the client loses a cancellation that meets an answer of Redis
        task.cancel()
        await asyncio.wait({task}, timeout=_CANCEL_AGAIN_S)
