"""Progress is silent for two seconds, and says the same on a terminal and in a pipe."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from streams.cli.progress import LINE_SECONDS, QUIET_SECONDS, Meter


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.mark.parametrize("terminal", [True, False])
def test_what_is_quick_shows_nothing(terminal: bool) -> None:
    out, clock = io.StringIO(), Clock()
    with Meter("importing", "turns", console=Console(file=out, force_terminal=terminal), now=clock) as meter:
        meter.show(1, 0.1)
        clock.at += QUIET_SECONDS - 0.1
        meter.show(2, 0.2)
    assert out.getvalue() == ""


def test_a_pipe_gets_a_line_now_and_then() -> None:
    out, clock = io.StringIO(), Clock()
    with Meter("importing [x]", "turns", console=Console(file=out, width=80), now=clock) as meter:
        clock.at += QUIET_SECONDS
        meter.show(1_000, 0.25)
        meter.show(1_001, 0.26)
        clock.at += LINE_SECONDS
        meter.show(2_000)
    assert out.getvalue().splitlines() == ["importing [x]: 1,000 turns, 25%", "importing [x]: 2,000 turns"]


def test_a_terminal_gets_a_bar_that_goes_away() -> None:
    out, clock = io.StringIO(), Clock()
    with Meter(
        "importing [x]", "turns", console=Console(file=out, force_terminal=True, width=80), now=clock
    ) as meter:
        clock.at += QUIET_SECONDS
        meter.show(1_000, 0.25)
    shown = out.getvalue()
    assert "importing [x]" in shown
    assert "1,000 turns" in shown
    assert shown.endswith("\x1b[2K"), "the last thing is to clear the line"
