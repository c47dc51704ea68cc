"""The extractive summariser says the same of the same messages in every process: a redelivery is no second opinion."""

from __future__ import annotations

import os
import subprocess
import sys

_SUMMARISE = """
from tests.bench import load
from tests.bench.retention import extractive
for chat in range(25):
    print(extractive([("Mira", load.text(2 * (chat + 50 * at), 900)) for at in range(8)], 210))
"""


def test_the_order_of_sets_changes_nothing() -> None:
    # its sentences come again and again: many choices are as good as each other
    said = {
        subprocess.run(
            [sys.executable, "-c", _SUMMARISE],
            env={**os.environ, "PYTHONHASHSEED": seed},
            check=True,
            capture_output=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(said) == 1
    assert said.pop().strip()
