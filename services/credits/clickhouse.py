"""One connection to ClickHouse, a server or the engine in process, behind async calls that run one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import clickhouse_connect
from clickhouse_connect.driver.client import Client
from clickhouse_connect.driver.exceptions import ClickHouseError, OperationalError

from services.failures import Fatal, Transient

DATABASE = "afterturn"
"""The database where the address names none."""

CONNECT_SECONDS = 5
ANSWER_SECONDS = 60

# ClickHouse's numbers for what waiting does not mend: NO_SUCH_COLUMN_IN_TABLE, UNKNOWN_IDENTIFIER, TYPE_MISMATCH,
# UNKNOWN_TABLE, SYNTAX_ERROR, UNKNOWN_DATABASE, UNKNOWN_SETTING, ACCESS_DENIED
_LASTING = frozenset({16, 47, 53, 60, 62, 81, 115, 497})

T = TypeVar("T")


class AddressError(ValueError):
    """The setting `clickhouse` cannot be understood."""


@dataclass(frozen=True, slots=True, repr=False)
class Address:
    """`path` for the engine in process, else `host`, `port` and the rest. Its repr shows no password."""

    database: str
    path: Path | None = None
    host: str = ""
    port: int = 0
    secure: bool = False
    username: str | None = None
    password: str = ""

    def __repr__(self) -> str:
        if self.path:
            return f"chdb:{self.path}"
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}/{self.database}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """From `http(s)://user:password@host:port/database` or `chdb:DIRECTORY`. Raises AddressError."""
        if text.startswith("chdb:"):
            directory = text.removeprefix("chdb:")
            if not directory:
                raise AddressError("clickhouse: chdb: needs a directory")
            return cls(database=DATABASE, path=Path(directory).expanduser().resolve())
        try:
            parts = urlsplit(text)
            port = parts.port
        except ValueError as error:
            raise AddressError(f"clickhouse: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise AddressError(
                "clickhouse: write http(s)://user:password@host:port/database or chdb:DIRECTORY"
            )
        secure = parts.scheme == "https"
        return cls(
            database=unquote(parts.path.strip("/")) or DATABASE,
            host=parts.hostname,
            port=port or (8443 if secure else 8123),
            secure=secure,
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password or ""),
        )


def _open(address: Address) -> Client:
    # the database is set afterwards: it may not exist yet
    if address.path:
        address.path.mkdir(parents=True, exist_ok=True)
        try:
            return clickhouse_connect.get_client(interface="chdb", path=str(address.path), tz_mode="aware")
        except ClickHouseError as error:
            raise Fatal(
                f"{address!r} cannot be opened: another process has it open, or this one has another directory open"
            ) from error
    return clickhouse_connect.get_client(
        interface="https" if address.secure else "http",
        host=address.host,
        port=address.port,
        username=address.username,
        password=address.password,
        connect_timeout=CONNECT_SECONDS,
        send_receive_timeout=ANSWER_SECONDS,
        # a session forbids two requests at a time, also to one that a cancelled caller left behind
        autogenerate_session_id=False,
        dedicated_pool=True,
        tz_mode="aware",
    )


class Connection:
    """Opened at the first call, and again at the next one where that failed.

    All calls run in one thread of its own, in the order of their arrival: a caller that is cancelled leaves its
    call to finish there, and the next one waits for it. Every method raises Transient(outage=True) where ClickHouse
    is away or overloaded, and Fatal where the schema or the rights are wrong (then `afterturn migrate` is missing).
    The engine in process serves one directory per process; close() sets it free for another.
    """

    def __init__(self, address: str) -> None:
        self.address = Address.parse(address)
        self._client: Client | None = None
        self._in_database = False
        self._closed = False
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="clickhouse")

    async def command(self, sql: str) -> None:
        """Run one statement."""
        await self._run(lambda client: client.command(sql))

    async def rows(
        self, sql: str, parameters: Mapping[str, Any] | None = None, settings: Mapping[str, Any] | None = None
    ) -> Sequence[tuple[Any, ...]]:
        """Rows of a query. `%(name)s` in the text is replaced by a quoted parameter."""
        result = await self._run(
            lambda client: (
                client.query(
                    sql,
                    parameters=dict(parameters) if parameters else None,
                    settings=dict(settings) if settings else None,
                ).result_rows
            )
        )
        return [tuple(row) for row in result]

    async def insert(
        self, table: str, columns: Mapping[str, tuple[str, Sequence[Any]]], settings: Mapping[str, Any]
    ) -> None:
        """Insert in one block; `columns` is column name -> (ClickHouse type, values)."""
        await self._run(
            lambda client: client.insert(
                table,
                [values for _, values in columns.values()],
                column_names=list(columns),
                column_type_names=[kind for kind, _ in columns.values()],
                column_oriented=True,
                settings=dict(settings),
            )
        )

    async def create_database(self) -> None:
        """Make the address's database, where it is missing."""
        name = self.address.database

        def create(client: Client) -> None:
            found = client.query("SELECT 1 FROM system.databases WHERE name = %(name)s", {"name": name})
            if not found.result_rows:
                client.command(f"CREATE DATABASE IF NOT EXISTS `{name.replace('`', '')}`")

        await self._run(create, in_database=False)

    async def close(self) -> None:
        """Wait for the call that runs, then release the engine or the sockets. Closing twice does nothing more."""
        if self._closed:
            return
        self._closed = True
        await asyncio.get_running_loop().run_in_executor(self._thread, self._release)
        self._thread.shutdown(wait=False)

    def _release(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    async def _run(self, work: Callable[[Client], T], *, in_database: bool = True) -> T:
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, self._guarded, work, in_database
        )

    def _guarded(self, work: Callable[[Client], T], in_database: bool) -> T:
        try:
            if self._client is None:
                self._client = _open(self.address)
                self._in_database = False
            if in_database and not self._in_database:
                self._client.database = self.address.database
                self._in_database = True
            return work(self._client)
        except ClickHouseError as error:
            raise failure(error, self.address) from error
        except OSError as error:
            raise Transient(f"ClickHouse at {self.address!r}: {error}", outage=True) from error


def failure(error: ClickHouseError, address: Address) -> Transient | Fatal:
    """Whether waiting helps. What is not known to last counts as an outage: Kafka keeps the records meanwhile."""
    code = getattr(error, "code", None)
    first_line = str(error).partition("\n")[0][:300]
    if code in _LASTING:
        return Fatal(
            f"ClickHouse at {address!r} refuses (code {code}); was `afterturn migrate` run? {first_line}"
        )
    if code is None and not isinstance(error, OperationalError) and address.path:
        return Fatal(f"ClickHouse at {address!r}: {first_line}")
    return Transient(f"ClickHouse at {address!r}: {first_line}", outage=True)
