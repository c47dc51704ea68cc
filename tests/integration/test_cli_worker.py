"""`afterturn worker` as a process: health, metrics, logs without text, and an orderly end."""

from __future__ import annotations

import json
import signal

import aiohttp
import pytest
from aiokafka import AIOKafkaProducer
from redis.asyncio import Redis

from schemas.delivery import Topics
from services.metrics import METRICS
from services.state.keys import ChatKeys
from tests import cli
from tests.gateway import turn
from tests.stack import Broker, until

MARKER = "marmalade-7-secret"
SHUTDOWN_SECONDS = 5.0


async def produce(broker: Broker, *values: bytes) -> None:
    """Records of the chat c1."""
    producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, acks="all")
    await producer.start()
    for value in values:
        await producer.send_and_wait(Topics.TURNS, key=b"c1", value=value)
    await producer.stop()


def events() -> list[bytes]:
    """A turn, and three records that are wrong in different ways; all of them with the marker in a text."""
    good = turn(1)
    good["messages"][0]["text"] = MARKER
    wrong_type = {**turn(2), "type": MARKER}
    wrong_field = turn(3)
    wrong_field["messages"][0]["role"] = MARKER
    return [
        json.dumps(good).encode(),
        json.dumps(wrong_type).encode(),
        json.dumps(wrong_field).encode(),
        b'{"text": "' + MARKER.encode(),
    ]


@pytest.mark.rule("F4")
async def test_a_worker_from_start_to_end(broker: Broker, redis: Redis, redis_url: str) -> None:
    settings = {
        "AFTERTURN_KAFKA": broker.bootstrap,
        "AFTERTURN_REDIS": redis_url,
        "AFTERTURN_SHUTDOWN_DEADLINE": str(SHUTDOWN_SECONDS),
    }
    async with cli.started("worker", "window", **settings) as worker, aiohttp.ClientSession() as http:
        health = json.loads(await worker.line('"health"'))["health"]
        metrics = ""

        async def healthy() -> bool:
            async with http.get(f"{health}/healthz") as response:
                return response.status == 200

        async def handled() -> bool:
            nonlocal metrics
            async with http.get(f"{health}/metrics") as response:
                metrics = await response.text()
            return 'afterturn_dead_total{agent="window",kind="poison"} 3.0' in metrics

        await until(healthy, "the worker is in its group", 60)
        await produce(broker, *events())
        await until(handled, "three dead letters", 60)
        for metric in METRICS:
            assert f"# HELP afterturn_{metric.name} {metric.meaning}" in metrics
        assert MARKER not in metrics
        assert await redis.hget(ChatKeys.of("c1").window, "tn") == b"1"
        worker.signal(signal.SIGTERM)
        ended = await worker.ended(SHUTDOWN_SECONDS + 15)
        assert ended.code == 0, ended.err
        assert not worker.alive

    logged = [json.loads(line) for line in (*ended.out.splitlines(), *ended.err.splitlines())]
    assert {"started", "dead letter", "stopped"} <= {entry["event"] for entry in logged}
    assert sum(entry["event"] == "dead letter" for entry in logged) == 3
    # Faust tells each step of each of its services
    assert not [entry for entry in logged if entry["event"].startswith("[^")]
    assert MARKER not in ended.out + ended.err


@pytest.mark.parametrize("bare_broker", ["embedded"], indirect=True)
async def test_a_taken_port_is_said_in_one_line(broker: Broker, redis_url: str) -> None:
    settings = {"AFTERTURN_KAFKA": broker.bootstrap, "AFTERTURN_REDIS": redis_url}
    port = broker.bootstrap.rpartition(":")[2]
    ended = await cli.run("worker", "window", "--health-port", port, **settings)
    assert ended.code == 1
    assert ended.err.splitlines()[-1].startswith("afterturn: ")
    assert "Traceback" not in ended.err
