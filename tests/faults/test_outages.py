"""Redis, the broker and ClickHouse go away while the pipeline works, and come back: the workers wait and go on.

What holds for Redis is what `afterturn up --data` promises: its append-only file is written before a command is
answered and synced every second, so that the death of the process loses nothing that was answered.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from pathlib import Path

import pytest

from infra import topics
from infra.stack import Server, apache, process, valkey
from services.settings import Settings
from streams.drain import lags
from streams.runtime.lag import open_lag
from streams.runtime.publisher import client_options
from tests.clickhouse import http_in_process
from tests.faults.load import Load, plan
from tests.faults.run import IN_FLIGHT, Run, opened
from tests.stack import Broker, lanes, require, until

SMALL = {"window": 2, "summarise": 2, "merge": 1, "memories": 1, "credits": 1}
SECONDS = 12.0
AWAY = 2.0
"""Seconds that a store stays away: longer than the first retries, shorter than the session timeout."""


def on_ports_of(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next server that is started takes the ports of this one."""
    monkeypatch.setattr(process, "free_ports", lambda count: server.ports[:count])


async def applied(run: Run, records: int) -> None:
    """Until the load is under way: so many records are published and the model is at work."""

    async def under_way() -> bool:
        run.workers.check_running()
        return run.published >= records and bool(run.model.calls)

    await until(under_way, f"{records} records are published", 90)


async def finished(run: Run, load: Load) -> None:
    """Everything is worked off by the same processes, nothing is lost or doubled."""
    await run.drained(120)
    await run.stopped()
    wrong = await run.wrong(load)
    assert wrong == [], "\n".join([f"{len(wrong)} findings", *wrong[:20]])
    assert run.workers.kills == []


@pytest.mark.timeout(400)
@pytest.mark.rule("W6", "S1", "C2")
async def test_redis_is_killed_and_comes_back(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "redis"
    load = plan(11, chats=20, turns=50, poison=9)
    with ExitStack() as servers:

        def start() -> Server:
            server = valkey.start(folder, tmp_path / "redis.log", keep=True)
            servers.callback(server.stop)
            return server

        server = start()
        on_ports_of(server, monkeypatch)
        async with opened(broker.bootstrap, valkey.url(server), tmp_path, 11, SMALL) as run:
            await run.workers.ready()
            publishing = asyncio.create_task(run.publish(load, SECONDS))
            for share, end in ((3, Server.kill), (2, Server.stop)):
                await applied(run, len(load.records) // share)
                await asyncio.to_thread(end, server)
                await asyncio.sleep(AWAY)
                server = await asyncio.to_thread(start)
            await publishing
            await finished(run, load)
            # an answer that met the outage is asked for once more, and nothing else is
            assert run.repeated <= 2 * IN_FLIGHT * SMALL["summarise"] + 2 * IN_FLIGHT


@pytest.mark.timeout(400)
@pytest.mark.rule("W6", "S1", "C2")
@pytest.mark.skipif("apache" not in lanes(), reason="a broker that keeps its log")
async def test_the_broker_is_restarted(
    own_redis: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("apache")
    # without poison: the test's producer may write a record twice when its confirmation is lost
    load = plan(12, chats=20, turns=50, poison=0)
    with ExitStack() as servers:

        def start() -> Server:
            server = apache.start(tmp_path / "kafka", tmp_path / "kafka.log")
            servers.callback(server.stop)
            return server

        server = await asyncio.to_thread(start)
        bootstrap = f"127.0.0.1:{server.port}"
        await topics.apply(bootstrap)
        on_ports_of(server, monkeypatch)
        async with opened(bootstrap, valkey.url(own_redis), tmp_path, 12, SMALL) as run:
            await run.workers.ready()
            publishing = asyncio.create_task(run.publish_patiently(load, SECONDS))
            for share, end in ((3, Server.stop), (2, Server.kill)):
                await applied(run, len(load.records) // share)
                await asyncio.to_thread(end, server)
                await asyncio.sleep(AWAY)
                server = await asyncio.to_thread(start)
            await publishing
            await finished(run, load)


@pytest.mark.timeout(400)
@pytest.mark.rule("C2", "F4")
async def test_clickhouse_is_away_and_kafka_is_the_buffer(
    broker: Broker, own_redis: Server, tmp_path: Path
) -> None:
    load = plan(13, chats=12, turns=50, poison=9)
    folder = tmp_path / "clickhouse"
    folder.mkdir()
    settings = Settings(kafka=broker.bootstrap)
    with ExitStack() as server:
        url, http = server.enter_context(http_in_process(folder))
        redis_url = valkey.url(own_redis)
        run_of = opened(broker.bootstrap, redis_url, tmp_path, 13, SMALL, AFTERTURN_CLICKHOUSE=url)
        async with run_of as run:
            await run.workers.ready()
            publishing = asyncio.create_task(run.publish(load, SECONDS))
            await applied(run, len(load.records) // 3)
            server.close()
            await publishing
            async with open_lag(client_options(settings)) as lag:

                async def others_done() -> bool:
                    run.workers.check_running()
                    left = await lags(lag)
                    return not any(count for agent, count in left.items() if agent != "credits")

                await until(others_done, "all but the credits are worked off", 120)
                assert (await lags(lag))["credits"] > 0
            with http_in_process(folder, http.server_address[1]):
                await run.drained(120)
                await run.stopped()
            wrong = await run.wrong(load)
            assert wrong == [], "\n".join([f"{len(wrong)} findings", *wrong[:20]])
