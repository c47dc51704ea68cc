"""Handing a fetched record to its agent without four tasks a record.

Faust's fetcher runs every delivery through `Service.wait_first`, which makes a task for each of its parts. A delivery
almost never has to wait, so it is driven one step first; only where it blocks (the agent's buffer is full) does the
rest of it go through `wait_first`, with the meaning that has.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, Any], waiting_for: Any) -> Generator[Any, Any, Any]:
    """What remains of a coroutine that has been driven up to its first suspension, as an awaitable of its own."""
    while True:
        try:
            sent = yield waiting_for
        except BaseException as error:
            step: Callable[[Any], Any] = coroutine.throw
            argument: Any = error
        else:
            step = coroutine.send
            argument = sent
        try:
            waiting_for = step(argument)
        except StopIteration as stop:
            return stop.value


def start(coroutine: Coroutine[Any, Any, Any]) -> Coroutine[Any, Any, Any] | None:
    """Drive `coroutine` until it ends (None) or waits (its rest). Raises what the coroutine raises."""
    try:
        waiting_for = coroutine.send(None)
    except StopIteration:
        return None
    return _as_coroutine(_rest(coroutine, waiting_for))


async def _as_coroutine(awaitable: Any) -> Any:
    return await awaitable
