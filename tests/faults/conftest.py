"""Fixtures of the fault tests: stores and brokers of their own, that may be killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.stack import Server, valkey


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[Server]:
    """A Redis of this test alone, in memory."""
    folder = tmp_path / "redis"
    folder.mkdir()
    server = valkey.start(folder, folder / "redis.log", keep=False)
    yield server
    server.stop()
