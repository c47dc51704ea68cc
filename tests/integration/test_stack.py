"""The servers as child processes: they start, they work, they are gone afterwards, whoever dies how."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from redis.asyncio import Redis

from infra import topics
from infra.stack import DataInUse, Stack, StartFailed, process
from infra.stack.ports import free_ports, listens
from schemas.delivery import Topics
from tests.stack import lanes, require

KINDS = [kind for kind in lanes() if kind != "external"]
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's signal to orphans is Linux only")

PARENT = """
import sys
from infra.stack import Stack
with Stack(sys.argv[1]) as stack:
    print(stack.broker_server.pid, stack.redis_server.pid, flush=True)
    sys.stdin.read()
"""

STUBBORN = """
import signal, socket, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    server.accept()[0].close()
"""


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _ends(descriptor: int, seconds: float = 20.0) -> bool:
    """Whether the process behind a pidfd ends within `seconds`."""
    return bool(select.select([descriptor], [], [], seconds)[0])


@contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


async def _send(bootstrap: str, values: list[bytes]) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all")
    await producer.start()
    try:
        for value in values:
            await producer.send_and_wait(Topics.TURNS, value, key=b"chat")
    finally:
        await producer.stop()


async def _read(bootstrap: str, count: int) -> list[bytes]:
    consumer = AIOKafkaConsumer(
        Topics.TURNS, bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None
    )
    await consumer.start()
    try:
        return [(await consumer.getone()).value for _ in range(count)]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stack_starts_works_and_leaves_nothing(kind: str) -> None:
    require(kind)
    async with Stack(kind) as stack:
        assert stack.broker_server is not None
        assert stack.redis_server is not None
        pids = [stack.broker_server.pid, stack.redis_server.pid]
        folder = stack.logs.parent
        await topics.apply(stack.bootstrap)
        await _send(stack.bootstrap, [b"one", b"two"])
        assert await _read(stack.bootstrap, 2) == [b"one", b"two"]
        async with Redis.from_url(stack.redis_url) as redis:
            assert await redis.ping()
            assert await redis.config_get("appendonly") == {"appendonly": "no"}
        assert stack.clickhouse == f"chdb:{folder / 'clickhouse'}"
        assert all(map(_alive, pids))

    assert not any(map(_alive, pids))
    assert not folder.exists()


@linux
@pytest.mark.parametrize("kind", KINDS)
def test_no_server_outlives_a_parent_that_is_killed(kind: str, tmp_path: Path) -> None:
    require(kind)
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, kind],
        env={
            **os.environ,
            "TMPDIR": str(tmp_path),
        },  # what it cannot remove any more is removed with the test
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        descriptors = [os.pidfd_open(pid) for pid in pids]
        parent.send_signal(signal.SIGKILL)
    try:
        assert len(pids) == 2
        assert [pid for pid, descriptor in zip(pids, descriptors, strict=True) if not _ends(descriptor)] == []
    finally:
        for descriptor in descriptors:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.close(descriptor)


@linux
def test_a_server_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    stacks: list[Stack] = []
    thread = threading.Thread(target=lambda: stacks.append(Stack(data=tmp_path).start()))
    thread.start()
    thread.join()
    try:
        server = stacks[0].redis_server
        assert server is not None
        with _pidfd(server.pid) as descriptor:
            assert not _ends(descriptor, 0.2), "the kernel took the thread for the parent"
    finally:
        stacks[0].close()


async def test_two_stacks_run_beside_each_other(tmp_path: Path) -> None:
    async with Stack(data=tmp_path / "a") as one, Stack(data=tmp_path / "b") as two:
        assert one.bootstrap != two.bootstrap
        await asyncio.gather(topics.apply(one.bootstrap), topics.apply(two.bootstrap))
        await _send(one.bootstrap, [b"for one"])
        await _send(two.bootstrap, [b"for two"])
        assert await _read(one.bootstrap, 1) == [b"for one"]
        assert await _read(two.bootstrap, 1) == [b"for two"]


async def test_redis_is_kept_and_the_memory_only_log_is_a_new_one(tmp_path: Path) -> None:
    """Promise 9: beside a kept Redis the new log has another epoch, so that its offset 0 is no repeat."""
    async with Stack(data=tmp_path) as stack:
        await topics.apply(stack.bootstrap)
        before = await topics.read_epochs(stack.bootstrap)
        async with Redis.from_url(stack.redis_url) as redis:
            await redis.set("kept", "yes")
    async with Stack(data=tmp_path) as stack:
        await topics.apply(stack.bootstrap)
        after = await topics.read_epochs(stack.bootstrap)
        async with Redis.from_url(stack.redis_url) as redis:
            assert await redis.get("kept") == b"yes"

    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values())


async def test_what_redis_answered_survives_its_own_death(tmp_path: Path) -> None:
    async with Stack(data=tmp_path) as stack:
        async with Redis.from_url(stack.redis_url) as redis:
            await redis.set("kept", "yes")
        assert stack.redis_server is not None
        stack.redis_server.kill()
        assert not stack.redis_server.running
    async with Stack(data=tmp_path) as stack, Redis.from_url(stack.redis_url) as redis:
        assert await redis.get("kept") == b"yes"


@pytest.mark.skipif("apache" not in KINDS, reason="the Apache Kafka lane is not chosen")
async def test_apache_kafka_keeps_log_groups_and_epochs(tmp_path: Path) -> None:
    """The ports change from start to start. The broker is killed, not stopped, the first time."""
    require("apache")
    partition = TopicPartition(Topics.TURNS, 0)
    async with Stack("apache", data=tmp_path) as stack:
        await topics.apply(stack.bootstrap)
        epochs = await topics.read_epochs(stack.bootstrap)
        await _send(stack.bootstrap, [b"one", b"two"])
        consumer = AIOKafkaConsumer(
            bootstrap_servers=stack.bootstrap, group_id="kept", enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([partition])
        await consumer.commit({partition: 7})
        await consumer.stop()
        assert stack.broker_server is not None
        stack.broker_server.kill()
    async with Stack("apache", data=tmp_path) as stack:
        assert (await topics.apply(stack.bootstrap)).created == ()
        assert await topics.read_epochs(stack.bootstrap) == epochs
        assert await _read(stack.bootstrap, 2) == [b"one", b"two"]
        consumer = AIOKafkaConsumer(
            bootstrap_servers=stack.bootstrap, group_id="kept", enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([partition])
        assert await consumer.committed(partition) == 7
        await consumer.stop()


def test_a_data_folder_belongs_to_one_stack(tmp_path: Path) -> None:
    with Stack(data=tmp_path), pytest.raises(DataInUse, match=f"process {os.getpid()}"):
        Stack(data=tmp_path).start()
    with Stack(data=tmp_path):
        pass  # free again


def test_the_folder_of_a_killed_stack_is_removed_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, redis_url: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    killed = tmp_path / "afterturn-stack-killed"
    (killed / "logs").mkdir(parents=True)
    (killed / "lock").write_text("1")
    strange = tmp_path / "afterturn-stack-without-a-lock"
    strange.mkdir()
    with (
        Stack("127.0.0.1:19092", redis_url=redis_url) as first,
        Stack("127.0.0.1:19092", redis_url=redis_url),
    ):
        assert not killed.exists()
        assert first.logs.exists(), "a stack that runs keeps its folder"
    assert list(tmp_path.iterdir()) == [strange]


def test_servers_that_run_already_are_used_and_not_stopped(redis_url: str) -> None:
    with Stack("127.0.0.1:19092", redis_url=redis_url) as stack:
        assert (stack.bootstrap, stack.redis_url) == ("127.0.0.1:19092", redis_url)
        assert (stack.broker_server, stack.redis_server) == (None, None)


@pytest.mark.parametrize("broker", ["tansu", "localhost", ":9092", "host:port"])
def test_an_unknown_broker_is_refused_by_name(broker: str) -> None:
    with pytest.raises(ValueError, match="embedded, apache, HOST:PORT"):
        Stack(broker)


def test_nothing_stays_when_the_broker_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CALF_TANSU_BIN", "/bin/false")
    stack = Stack(data=tmp_path)
    with pytest.raises(StartFailed, match="Tansu ended with exit code 1"):
        stack.start()
    assert stack.redis_server is not None
    assert not stack.redis_server.running
    with Stack("127.0.0.1:19092", data=tmp_path):
        pass  # the folder is free again


def test_a_start_that_lost_its_port_takes_another(
    monkeypatch: pytest.MonkeyPatch, redis_server: process.Server, tmp_path: Path
) -> None:
    """The other server answers the same protocol on that port, and still is not taken for the new one."""
    answers: list[tuple[int, ...]] = [(redis_server.port,)]

    def ports(count: int) -> tuple[int, ...]:
        return answers.pop() if answers else free_ports(count)

    monkeypatch.setattr(process, "free_ports", ports)
    with Stack("127.0.0.1:19092", data=tmp_path) as stack:
        assert stack.redis_server is not None
        assert stack.redis_server.port != redis_server.port
        assert listens(stack.redis_server.pid, stack.redis_server.port)
    assert not answers


def _connects(port: int) -> bool:
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


def test_a_server_that_ignores_the_request_to_stop_is_killed(tmp_path: Path) -> None:
    server = _start(tmp_path, STUBBORN)
    server.stop(grace=0.1)
    assert not server.running
    assert not _alive(server.pid)
    server.stop()  # twice is fine


def test_a_server_that_is_never_ready_is_ended(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"was not ready after 0\.3 s"):
        _start(tmp_path, STUBBORN, ready=lambda _: False, deadline=0.3)


def test_the_end_of_its_log_tells_why_a_server_did_not_start(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="exit code 3\nbad configuration"):
        _start(tmp_path, "import sys; print('bad configuration'); sys.exit(3)")


def _start(
    folder: Path, script: str, ready: Callable[[int], bool] = _connects, deadline: float = 20.0
) -> process.Server:
    return process.start(
        "Script",
        lambda ports: [sys.executable, "-u", "-c", script, str(ports[0])],
        ready,
        folder / "log",
        deadline=deadline,
    )
