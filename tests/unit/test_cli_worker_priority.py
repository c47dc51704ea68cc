"""Which workers give way to requests on the same machine."""

from __future__ import annotations

import subprocess
import sys

import pytest

from services.settings import Settings
from streams.cli.worker import idle


@pytest.mark.parametrize(
    ("agent", "model", "priority", "expected"),
    [
        ("summarise", "extractive", "idle", True),
        ("merge", "extractive", "idle", True),
        ("merge", "extractive", "normal", False),
        ("window", "extractive", "idle", False),
        ("credits", "extractive", "idle", False),
        ("summarise", "deepseek-v3.1", "idle", False),
    ],
)
def test_only_what_computes_in_the_background_gives_way(
    agent: str, model: str, priority: str, expected: bool
) -> None:
    settings = Settings.model_validate({"summary_model": model, "summary_priority": priority})
    assert idle(agent, settings) == expected


@pytest.mark.skipif(sys.platform != "linux", reason="the scheduling class is Linux's")
def test_a_process_that_gives_way_is_idle_with_all_its_threads() -> None:
    program = """
import os
from concurrent.futures import ThreadPoolExecutor
from streams.cli.worker import _give_way
_give_way()
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(os.sched_getscheduler, 0).result() == os.SCHED_IDLE
"""
    subprocess.run([sys.executable, "-c", program], check=True)
