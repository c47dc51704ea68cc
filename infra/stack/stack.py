"""The servers that the pipeline needs, on this machine, for as long as a block runs.

| option | what is kept in `data` | what a crash or a restart loses |
|---|---|---|
| no `data` | nothing, everything is in a temporary folder that is removed | everything |
| `data`, broker `embedded` | Redis, ClickHouse | records that no agent had handled (Tansu's log is in memory) |
| `data`, broker `apache` | Redis, ClickHouse, the log | nothing |
| broker `HOST:PORT` | Redis, ClickHouse with `data` | as that broker is run |
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from infra.stack import apache, folders, process, tansu, valkey
from infra.stack.ports import LOOPBACK

EMBEDDED = "embedded"
APACHE = "apache"


class Stack:
    """Broker, Redis and a ClickHouse folder. `with Stack() as stack:` or `async with`; or `start()` and `close()`.

    `broker` is "embedded" (Tansu), "apache" (Apache Kafka, needs Java; Maven for the first time) or the
    HOST:PORT of one that runs already. `data` is a folder to keep things in; None keeps nothing. `redis_url`
    names a Redis that runs already. `report` is told what takes long.

    While it runs: `bootstrap` (HOST:PORT), `redis_url`, `clickhouse` (the setting `chdb:DIRECTORY`), `logs`
    (folder of the servers' logs), `broker_server` and `redis_server` (None for those that ran already).
    """

    def __init__(
        self,
        broker: str = EMBEDDED,
        data: Path | None = None,
        redis_url: str | None = None,
        report: Callable[[str], None] | None = None,
    ) -> None:
        if broker not in (EMBEDDED, APACHE) and not _is_address(broker):
            raise ValueError(f"broker: {broker!r} is none of embedded, apache, HOST:PORT")
        self.broker = broker
        self.data = data.resolve() if data is not None else None
        self.bootstrap = broker if _is_address(broker) else ""
        self.redis_url = redis_url or ""
        self.clickhouse = ""
        self.logs = Path()
        self.broker_server: process.Server | None = None
        self.redis_server: process.Server | None = None
        self._report = report
        self._open = ExitStack()

    def start(self) -> Self:
        """Start what is to be started; nothing stays behind if one of them fails.

        Raises folders.DataInUse, process.StartFailed, jars.KafkaUnavailable.
        """
        with ExitStack() as opened:
            place = folders.temporary() if self.data is None else folders.kept(self.data)
            folder = opened.enter_context(place)
            self.logs = folder / "logs"
            self.logs.mkdir(exist_ok=True)
            if not self.redis_url:
                log = self.logs / "redis.log"
                self.redis_server = valkey.start(folder / "redis", log, keep=self.data is not None)
                opened.callback(self.redis_server.stop)
                self.redis_url = valkey.url(self.redis_server)
            if not self.bootstrap:
                self.broker_server = self._start_broker(folder)
                opened.callback(self.broker_server.stop)
                self.bootstrap = f"{LOOPBACK}:{self.broker_server.port}"
            self.clickhouse = f"chdb:{folder / 'clickhouse'}"
            self._open = opened.pop_all()
        return self

    def close(self) -> None:
        """Stop what was started, the broker first, and remove the temporary folder. May be called twice."""
        self._open.close()

    def _start_broker(self, folder: Path) -> process.Server:
        log = self.logs / "kafka.log"
        return (
            apache.start(folder / "kafka", log, self._report) if self.broker == APACHE else tansu.start(log)
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)


def _is_address(broker: str) -> bool:
    host, _, port = broker.rpartition(":")
    return bool(host) and port.isdigit()
