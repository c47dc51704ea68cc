"""ClickHouse for tests: in process, behind HTTP in process, and a server in a container where Docker is."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import chdb
import docker
import lz4.frame
import yaml

from infra.clickhouse import folder
from services.credits.clickhouse import Connection
from services.credits.ledger import ClickHouseLedger, Row
from services.credits.migrations import load, migrate

BOOKED_AT = datetime(2026, 12, 1, tzinfo=UTC)
AT = datetime(2026, 11, 30, 10, tzinfo=UTC)


async def open_ledger(address: str) -> tuple[Connection, ClickHouseLedger]:
    """A migrated ledger whose clock stands still."""
    connection = Connection(address)
    await migrate(connection, load(folder()))
    return connection, ClickHouseLedger(connection, clock=lambda: BOOKED_AT)


def row(number: int = 0, **changes: Any) -> Row:
    """A use; `number` makes it a distinct one, a second later for each."""
    base = Row(
        id=f"use-{number}",
        topic="credits.usage.v1",
        partition=number % 12,
        offset=number,
        at=AT + timedelta(seconds=number),
        user_id="u1",
        chat_id="c1",
        character="mira",
        model="deepseek-v3.1",
        stage="reply",
        tokens_in=100 + number,
        tokens_out=10,
        credits=Decimal("0.000001") * (number + 1),
    )
    return base._replace(**changes)


@contextmanager
def http_in_process(directory: Path, port: int = 0) -> Iterator[tuple[str, ThreadingHTTPServer]]:
    """The HTTP interface as far as the driver uses it, on the engine in process: the adapter's other half without a
    server. Queries are answered in the format that they ask for; errors carry ClickHouse's own number."""
    engine = chdb.connect(str(directory))
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

        def do_POST(self) -> None:
            parameters = parse_qs(urlsplit(self.path).query)
            body = self._body()
            try:
                with lock:
                    answer = self._execute(parameters, body)
                self._answer(200, answer, {})
            except RuntimeError as error:
                code = str(error).partition("Code: ")[2].partition(".")[0]
                self._answer(500, str(error).encode(), {"X-ClickHouse-Exception-Code": code})

        do_GET = do_POST

        def _body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") == "chunked":
                body = b""
                while size := int(self.rfile.readline(), 16):
                    body += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
            else:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            return lz4.frame.decompress(body) if self.headers.get("Content-Encoding") == "lz4" else body

        def _execute(self, parameters: dict[str, list[str]], body: bytes) -> bytes:
            for database in parameters.get("database", ()):
                engine.query(f"USE `{database}`")
            if body[:6].upper() != b"INSERT":
                statement = parameters["query"][0] if "query" in parameters else body.decode()
                form = parameters.get("default_format", ["TabSeparated"])[0]
                return engine.query(statement, form).bytes()
            # an insert: the statement in the first line, then the block
            statement, _, block = body.partition(b"\n")
            file = directory / "block.native"
            file.write_bytes(block)
            head, _, form = statement.decode().rpartition("FORMAT ")
            settings = [
                f"{name} = {value}"
                for name, (value,) in parameters.items()
                if name.startswith("max_partitions")
            ]
            clause = f"SETTINGS {', '.join(settings)} " if settings else ""
            engine.query(f"{head} FROM INFILE '{file}' {clause}FORMAT {form}")
            return b""

        def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/afterturn", server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        engine.close()


def image() -> str:
    """ClickHouse's image as docker-compose.yml pins it."""
    compose = yaml.safe_load((Path(__file__).parents[1] / "docker-compose.yml").read_text())
    return next(
        service["image"]
        for service in compose["services"].values()
        if "clickhouse" in service.get("image", "").partition(":")[0]
    )


def _docker_missing() -> str | None:
    try:
        client = docker.from_env()
        client.ping()
        client.close()
    except docker.errors.DockerException:
        return "no Docker engine answers: the ClickHouse server lane is skipped"
    return None


DOCKER_MISSING = _docker_missing()
"""Why the server lane cannot run, in one line; None where a Docker engine answers."""


@contextmanager
def server_in_container() -> Iterator[str]:
    """The address of a real server."""
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.wait_strategies import HttpWaitStrategy

    container = (
        DockerContainer(image())
        .with_exposed_ports(8123)
        .with_env("CLICKHOUSE_USER", "tester")
        .with_env("CLICKHOUSE_PASSWORD", "tester")
        .waiting_for(HttpWaitStrategy(8123, "/ping"))
    )
    with container:
        host, port = container.get_container_host_ip(), container.get_exposed_port(8123)
        yield f"http://tester:tester@{host}:{port}/afterturn"
