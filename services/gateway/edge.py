"""What wraps every request: counting, timing, and the answer where the code failed. Plain ASGI, because it is paid for
by every request."""

from __future__ import annotations

import logging
import time
import traceback

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from services.gateway.metrics import GatewayMetrics
from services.gateway.problems import Problem

GONE = 499
"""Counted where the client went away before its request was read; no answer has it."""

_LOG = logging.getLogger(__name__)


class Edge:
    """Labels carry the route's template, never a path: paths name chats."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        status, stream, started = 0, False, time.perf_counter()

        async def watched(message: Message) -> None:
            nonlocal status, stream
            if message["type"] == "http.response.start":
                status = message["status"]
                stream = (b"content-type", b"text/event-stream; charset=utf-8") in message["headers"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except ClientDisconnect:
            # nobody is there to answer, and nothing is wrong here
            status = status or GONE
        except Exception as error:
            _log(error)
            if status:
                # the head is sent: only breaking off tells the client; what failed stays out of the server's log
                raise ConnectionAbortedError("the answer was broken off") from None
            problem = Problem(500, "internal", "Something went wrong here; it is logged.")
            await problem.response()(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path_format", "none")
            self._metrics.add(
                "gateway_requests_total", route=route, method=_method(scope), status=str(status)
            )
            if not stream:
                self._metrics.observe("gateway_request_seconds", time.perf_counter() - started, route=route)


def _log(error: Exception) -> None:
    """Type and place. The message may quote what could not be handled, and that may be the text of a chat."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    place = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
    _LOG.error("request failed", extra={"error": type(error).__name__, "place": place})


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in {"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"} else "other"
