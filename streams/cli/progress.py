"""Progress on standard error: nothing for two seconds, then a bar on a terminal, else a line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

QUIET_SECONDS = 2.0
LINE_SECONDS = 5.0


class Meter:
    """Shows how far something is. `what` says what is done, `unit` what is counted."""

    def __init__(
        self,
        what: str,
        unit: str,
        *,
        console: Console | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._unit = unit
        self._console = console or Console(stderr=True)
        self._now = now
        self._due = now() + QUIET_SECONDS
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, count: int, part: float | None = None) -> None:
        """`count` things are done; `part` is how much of the whole that is (0 to 1), where it is known."""
        if self._bar is None and self._now() < self._due:
            return
        if self._console.is_terminal:
            bar = self._started()
            total = 1.0 if part is not None else None
            bar.update(bar.task_ids[0], total=total, completed=part or 0.0, count=f"{count:,} {self._unit}")
            return
        self._due = self._now() + LINE_SECONDS
        share = f", {part:.0%}" if part is not None else ""
        self._console.print(f"{self._what}: {count:,} {self._unit}{share}", markup=False, highlight=False)

    def _started(self) -> Progress:
        if self._bar is None:
            self._bar = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[count]}", markup=False),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._bar.add_task(self._what, total=None, count="")
            self._bar.start()
        return self._bar
