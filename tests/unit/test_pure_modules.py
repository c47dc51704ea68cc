"""Rules are planned without a store: what is pure loads neither a Redis client nor a script."""

from __future__ import annotations

import subprocess
import sys

import pytest

PURE = [
    "services.audit.policy",
    "services.credits.policy",
    "services.deadletters.policy",
    "services.memories.policy",
    "services.memories.undo",
    "services.summaries.policy",
    "services.takeback.deletion",
    "services.takeback.fork",
    "services.takeback.policy",
    "services.takeback.reading",
    "services.window.policy",
]


@pytest.mark.parametrize("module", PURE)
def test_a_policy_is_loaded_without_a_store(module: str) -> None:
    told = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = told.stdout.split()
    assert module in loaded
    # whatever holds a script loads the client too
    assert {name for name in loaded if name.split(".")[0] in ("redis", "hiredis")} == set()
