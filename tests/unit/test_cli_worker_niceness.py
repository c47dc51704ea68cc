"""Which workers give way to requests on the same machine."""

from __future__ import annotations

import pytest

from services.settings import Settings
from streams.cli.worker import niceness


@pytest.mark.parametrize(
    ("agent", "model", "expected"),
    [
        ("summarise", "extractive", 7),
        ("merge", "extractive", 7),
        ("window", "extractive", 0),
        ("credits", "extractive", 0),
        ("summarise", "deepseek-v3.1", 0),
    ],
)
def test_only_what_computes_in_the_background_is_nice(agent: str, model: str, expected: int) -> None:
    assert niceness(agent, Settings(summary_model=model, summary_nice=7)) == expected
