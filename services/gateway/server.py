"""Runs the app with uvicorn inside a loop that others use as well: no signal handlers, an end that is asked for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

GRACE_SECONDS = 5
"""How long requests under way may take after `stop`; then they are cancelled."""


class Handle:
    """A gateway that listens on `host:port`."""

    def __init__(self, app: FastAPI, server: _Server, task: asyncio.Task[None], host: str, port: int) -> None:
        self._app = app
        self._server = server
        self._task = task
        self.host = host
        self.port = port

    async def wait(self) -> None:
        """Until the server has ended; raises what ended it."""
        await asyncio.shield(self._task)

    async def stop(self) -> None:
        """Stops listening, ends the streams of events, lets requests finish. May be called twice."""
        self._server.should_exit = True
        # before uvicorn waits for its connections: a stream of events has no end of its own
        await self._app.state.hub.close()
        await asyncio.gather(self._task, return_exceptions=True)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.listening = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listening.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one. Raises OSError where it cannot."""
    return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)


async def serve(app: FastAPI, host: str, port: int) -> Handle:
    """Returns once the gateway listens; port 0 takes a free one. Raises OSError where it cannot listen there."""
    listener = listen(host, port)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="on",
        server_header=False,
        ws="none",
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]), name="gateway")
    ready = asyncio.create_task(server.listening.wait())
    await asyncio.wait({task, ready}, return_when=asyncio.FIRST_COMPLETED)
    if task.done():
        ready.cancel()
        await task
        raise RuntimeError("the gateway ended before it listened")
    return Handle(app, server, task, host, listener.getsockname()[1])
