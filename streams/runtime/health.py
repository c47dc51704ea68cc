"""/healthz and /metrics of a worker, on a loopback port."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from streams.runtime.agent import Agent


class Health:
    """Answers 200 on /healthz while every agent is in its group and none has failed, else 503 with the names."""

    def __init__(self, agents: Sequence[Agent]) -> None:
        self._agents = agents
        self._runner: web.AppRunner | None = None
        self.port = 0

    async def start(self, host: str, port: int) -> None:
        """Listen; port 0 takes a free one, see `port`. Raises OSError where the port is taken."""
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, host, port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _healthz(self, _: web.Request) -> web.Response:
        states = {agent.spec.name: _state(agent) for agent in self._agents}
        ok = all(state == "ok" for state in states.values())
        return web.json_response(
            {"status": "ok" if ok else "not ready", "agents": states}, status=200 if ok else 503
        )

    async def _metrics(self, _: web.Request) -> web.Response:
        for agent in self._agents:
            agent.measure()
        # agents of one process share a registry (services/metrics.py)
        page = generate_latest(self._agents[0].metrics.registry)
        return web.Response(body=page, headers={"Content-Type": CONTENT_TYPE_LATEST})


def _state(agent: Agent) -> str:
    ways: tuple[tuple[str, Callable[[], bool]], ...] = (
        ("failed", agent.failed.done),
        ("joining", lambda: not agent.assigned),
    )
    return next((name for name, holds in ways if holds()), "ok")
