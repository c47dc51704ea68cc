"""The images of docker-compose.yml, with its settings, commands and health checks, where a Docker engine answers.

All suites run on such a broker, too: start one and choose it with AFTERTURN_TEST_BROKER=external (tests/stack.py).
ClickHouse's image has its lane in tests/contract/test_ledger.py.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from redis.asyncio import Redis
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HealthcheckWaitStrategy

from infra import topics
from infra.stack.ports import free_ports
from infra.stack.valkey import OLDEST
from schemas.delivery import Topics
from tests import compose
from tests.clickhouse import DOCKER_MISSING

pytestmark = pytest.mark.skipif(
    DOCKER_MISSING is not None, reason="no Docker engine answers: the container lane is skipped"
)

SECRETS = {"CLICKHOUSE_PASSWORD": "abc123", "SERVICE_TOKENS": '["token"]', "GRAFANA_PASSWORD": "abc123"}
SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600}


def nanoseconds(duration: str) -> int:
    parts = re.findall(r"(\d+)(ms|s|m|h)", duration)
    return round(sum(int(number) * SECONDS[unit] for number, unit in parts) * 1e9)


def container(name: str) -> DockerContainer:
    """The service as Compose would start it, apart from its volumes; ready when its own health check says so."""
    service = compose.load().services[name]
    made = DockerContainer(service.image)
    for key, value in service.environment.items():
        made.with_env(key, compose.filled(value, SECRETS))
    if service.command:
        made.with_command(service.command)
    check = service.healthcheck
    assert check is not None
    made.with_kwargs(
        hostname=name,
        healthcheck={
            "test": check.test,
            "interval": nanoseconds("1s"),
            "timeout": nanoseconds(check.timeout),
            "retries": 60,
        },
    )
    return made.waiting_for(HealthcheckWaitStrategy().with_startup_timeout(120))


@pytest.fixture
def kafka() -> Iterator[str]:
    (port,) = free_ports(1)
    made = container("kafka").with_bind_ports(29092, port)
    inside = "INSIDE://kafka:9092"
    with made.with_env("KAFKA_ADVERTISED_LISTENERS", f"{inside},OUTSIDE://localhost:{port}"):
        yield f"localhost:{port}"


async def test_kafka_of_compose_has_topics_with_epochs_and_carries_records(kafka: str) -> None:
    assert len((await topics.apply(kafka)).created) == len(topics.wanted())
    assert set(await topics.read_epochs(kafka)) == {spec.name for spec in topics.wanted()}

    producer = AIOKafkaProducer(bootstrap_servers=kafka, acks="all")
    await producer.start()
    await producer.send_and_wait(Topics.TURNS, b"value", key=b"chat")
    await producer.stop()
    consumer = AIOKafkaConsumer(
        Topics.TURNS, bootstrap_servers=kafka, auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    assert (await consumer.getone()).value == b"value"
    await consumer.stop()


async def test_redis_of_compose_is_new_enough_and_keeps_what_it_answered() -> None:
    with container("redis").with_exposed_ports(6379) as running:
        url = f"redis://{running.get_container_host_ip()}:{running.get_exposed_port(6379)}/0"
        async with Redis.from_url(url) as redis:
            version = (await redis.info("server"))["redis_version"]
            assert tuple(map(int, version.split(".")[:2])) >= OLDEST
            kept = await redis.config_get("append*")
            assert (kept["appendonly"], kept["appendfsync"]) == ("yes", "everysec")
            assert await redis.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}


@pytest.mark.timeout(1200)
def test_the_image_is_built_from_the_lock_file_and_has_the_command() -> None:
    build = ["docker", "build", "--quiet", "--file", "infra/container/Containerfile", "."]
    image = subprocess.run(build, cwd=compose.ROOT, check=True, capture_output=True, text=True).stdout.strip()
    run = ["docker", "run", "--rm", "--read-only", "--tmpfs", "/tmp", image]
    shown = subprocess.run([*run, "worker", "--help"], check=True, capture_output=True, text=True).stdout
    assert "Run one agent" in shown
