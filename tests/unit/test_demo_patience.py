"""The demo waits as long as the agents get further, however slow a model is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streams.demo import play


def drained(monkeypatch: pytest.MonkeyPatch, *windows: int) -> None:
    """Each window of patience ends with this many records left."""
    left = iter(windows)

    async def drain(_: Any, __: float, report: Callable[[dict[str, int]], None]) -> bool:
        lags = {"window": 0, "summarise": next(left)}
        report(lags)
        return not any(lags.values())

    monkeypatch.setattr(play, "drain", drain)


class Stack:
    """All that the wait looks at."""

    settings = None


async def test_a_slow_model_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    drained(monkeypatch, 30, 20, 10, 0)
    told: list[dict[str, int]] = []
    await play.finished(Stack, lambda lags: told.append(dict(lags)))  # type: ignore[arg-type]
    assert [lags["summarise"] for lags in told] == [30, 20, 10, 0]


async def test_a_standstill_is_told_with_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    drained(monkeypatch, 30, 20, 20)
    with pytest.raises(play.Unfinished, match=r"summarise 20$"):
        await play.finished(Stack, lambda _: None)  # type: ignore[arg-type]
