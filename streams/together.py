"""All agents and the gateway in one process, on a stack that is started for them (`afterturn up` and the demo)."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from infra import topics
from infra.stack import Stack
from services.audit.deleted import Verdict, verify
from services.audit.service import audit
from services.credits.ledger import ClickHouseLedger
from services.gateway import auth
from services.gateway.app import create_app
from services.gateway.ports import Deps
from services.gateway.server import Handle, serve
from services.settings import Settings
from services.summaries.editing import Editing
from streams import ledger as ledgers
from streams.chat_search import ChatSearch
from streams.pipeline import AGENTS, open_agents
from streams.resources import Resources, drafter, open_resources
from streams.runtime.publisher import client_options
from streams.runtime.worker import Worker

Report = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Running:
    """What runs. `token` opens the gateway; None where tokens were configured."""

    settings: Settings
    resources: Resources
    worker: Worker
    ledger: ClickHouseLedger
    gateway: Handle
    token: str | None

    @property
    def url(self) -> str:
        """Address of the gateway."""
        return f"http://{self.gateway.host}:{self.gateway.port}"


@asynccontextmanager
async def run_together(
    settings: Settings, broker: str, data: Path | None, report: Report
) -> AsyncIterator[Running]:
    """Start everything; stop it in order at the end: gateway, agents, ledger, servers.

    `broker` and `data` as for infra.stack.Stack. What the stack starts replaces the addresses of `settings`.
    Raises what Stack and the migrations raise.
    """
    async with AsyncExitStack() as opened:
        stack = Stack(broker, data, report=report)
        report(f"starting the {broker} broker, Redis and ClickHouse")
        await opened.enter_async_context(stack)
        settings = settings.model_copy(
            update={"kafka": stack.bootstrap, "redis": stack.redis_url, "clickhouse": stack.clickhouse}
        )
        options = client_options(settings)
        await topics.apply(options.pop("bootstrap_servers"), **options)
        connection = ledgers.connect(settings)
        opened.push_async_callback(connection.close)
        await ledgers.migrate(connection)
        ledger = ClickHouseLedger(connection)
        resources = await opened.enter_async_context(open_resources(settings))
        specs = await opened.enter_async_context(open_agents(tuple(AGENTS), resources, ledger))
        worker = Worker(specs, settings, resources.publisher)
        report("agents are joining their groups")
        opened.push_async_callback(worker.stop)
        await worker.start()
        gateway, token = await serve_gateway(resources, ledger)
        opened.push_async_callback(gateway.stop)
        running = Running(
            settings=settings, resources=resources, worker=worker, ledger=ledger, gateway=gateway, token=token
        )
        if data is not None:
            opened.callback(_described(running, data).unlink, missing_ok=True)
        yield running


def verify_with(resources: Resources, ledger: ClickHouseLedger) -> Callable[[str], Awaitable[Verdict]]:
    """Searches the stores of a running process for a deleted chat."""

    async def search(chat: str) -> Verdict:
        return await verify(
            resources.redis, ledger, ChatSearch(resources.settings), chat, progress=lambda count: None
        )

    return search


async def serve_gateway(
    resources: Resources, ledger: ClickHouseLedger | None = None
) -> tuple[Handle, str | None]:
    """The gateway on its address, and the token made up for it where none is configured. Raises ValueError, OSError.

    With a `ledger` it can audit.
    """
    authenticator, token = auth.from_settings(resources.settings)
    deps = Deps(
        redis=resources.redis,
        publisher=resources.publisher,
        summaries=Editing(resources.redis, resources.counter, clock=lambda: datetime.now(UTC)),
        authenticator=authenticator,
        drafter=drafter(resources.settings, resources.counter),
        counter=lambda: resources.counter,
        broker_ready=resources.publisher.ready,
        verify_deleted=None if ledger is None else verify_with(resources, ledger),
        audit=None
        if ledger is None
        else lambda chat, user: audit(resources.redis, ledger, chat=chat, user=user),
    )
    settings = resources.settings
    return await serve(create_app(deps), settings.host, settings.gateway_port), token


def _described(running: Running, data: Path) -> Path:
    """Addresses and token of a running stack, for the other commands; readable by this user only."""
    path = data / "running.json"
    content = {
        "pid": os.getpid(),
        "kafka": running.settings.kafka,
        "redis": running.settings.redis,
        "gateway": running.url,
        "token": running.token,
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(content, file)
    return path
