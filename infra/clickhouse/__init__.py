"""The ledger's schema: numbered SQL, applied in order by `afterturn migrate`.

A migration that was applied somewhere is never changed; a new number changes what it made. Every statement can run
twice (IF NOT EXISTS, OR REPLACE), because ClickHouse cannot undo half of a file.
"""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable


def folder() -> Traversable:
    """Where the SQL files are, installed or not."""
    return files(__package__)
