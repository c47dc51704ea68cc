"""Fixtures of all tests. Servers start when the first test asks for them and are gone at the end.

| fixture | scope | what it is |
|---|---|---|
| `redis_url` | session | URL of a Redis or Valkey of this test run, memory only |
| `redis` | test | `redis.asyncio.Redis` on it, bytes, emptied before the test |
| `broker` | test | `tests.stack.Broker` (`.bootstrap`, `.kind`) with the topics of topics.yaml, all empty |
| `bare_broker` | test | the same without any topic |

A test that takes `broker` or `bare_broker` runs once on each broker (ids "embedded", "apache"); which ones: see
tests/stack.py. A test of one broker only is marked
`@pytest.mark.parametrize("bare_broker", ["embedded"], indirect=True)`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from redis.asyncio import Redis

from infra import topics
from infra.stack import Server, apache, tansu, valkey
from tests import stack


@pytest.fixture(autouse=True)
def _no_outside_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test never meets a service that the environment of the developer names."""
    for name in os.environ:
        if name.startswith(("AFTERTURN_", "OPENAI_")) and not name.startswith("AFTERTURN_TEST_"):
            monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """The process behind `redis_url`."""
    folder = tmp_path_factory.mktemp("redis")
    server = valkey.start(folder, folder / "redis.log", keep=False)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def redis_url(redis_server: Server) -> str:
    """URL of a Redis; it is emptied only where the test also takes `redis`."""
    return valkey.url(redis_server)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    """A client (bytes) on an empty database."""
    async with Redis.from_url(redis_url, decode_responses=False) as client:
        await client.flushdb()
        yield client


@pytest.fixture(scope="session")
def apache_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Server]]:
    """Gives the session's Apache Kafka, started at the first call; skips where it cannot run."""
    running: list[Server] = []
    with ExitStack() as opened:

        def start() -> Server:
            stack.require("apache")
            if not running:
                folder = tmp_path_factory.mktemp("kafka")
                running.append(apache.start(folder, folder / "kafka.log"))
                opened.callback(running[0].stop)
            return running[0]

        yield start


@pytest.fixture(params=stack.lanes())
async def bare_broker(
    request: pytest.FixtureRequest, tmp_path: Path, apache_server: Callable[[], Server]
) -> AsyncIterator[stack.Broker]:
    """A broker without topics and groups."""
    if request.param == "embedded":
        server = tansu.start(tmp_path / "tansu.log")
        yield stack.Broker("embedded", f"127.0.0.1:{server.port}", server)
        server.stop()
        return
    if request.param == "apache":
        server = apache_server()
        broker = stack.Broker("apache", f"127.0.0.1:{server.port}", server)
    else:
        broker = stack.Broker("external", stack.external())
    await stack.empty(broker)
    yield broker


@pytest.fixture
async def broker(bare_broker: stack.Broker) -> stack.Broker:
    """A broker with the topics of topics.yaml, all empty."""
    await topics.apply(bare_broker.bootstrap)
    return bare_broker
