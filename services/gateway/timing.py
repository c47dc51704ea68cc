"""Counts and times requests by route. Plain ASGI: what wraps every request has to be cheap."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.metrics import GatewayMetrics


class Timing:
    """Labels carry the route's template, never a path: paths name chats."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, stream, started = 500, False, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status, stream
            if message["type"] == "http.response.start":
                status = message["status"]
                stream = (b"content-type", b"text/event-stream; charset=utf-8") in message["headers"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path_format", "none")
            self._metrics.add(
                "gateway_requests_total", route=route, method=_method(scope), status=str(status)
            )
            if not stream:
                self._metrics.observe("gateway_request_seconds", time.perf_counter() - started, route=route)


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in {"GET", "POST", "PATCH", "HEAD", "OPTIONS"} else "other"
