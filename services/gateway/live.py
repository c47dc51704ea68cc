"""GET /v1/chats/{chat}/events: server-sent events, so that a panel need not ask again and again."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from pydantic_core import from_json, to_json
from redis.exceptions import RedisError
from starlette.types import Receive, Scope, Send

from services.context.snapshot import Snapshot
from services.gateway import access
from services.gateway.auth import Authenticated, Principal
from services.gateway.context import ChatId
from services.gateway.hub import Hub, Signal, Subscription
from services.gateway.ports import Deps, deps_of
from services.gateway.problems import Problem, documented

_KINDS = frozenset({"window", "summary", "notice"})
_LOG = logging.getLogger(__name__)
router = APIRouter()


@router.get(
    "/v1/chats/{chat:path}/events",
    response_class=Response,
    summary="Changes of a chat, as they happen",
    responses={
        200: {
            "description": "Events `snapshot` (first, and again where some may have been missed), `window`, "
            "`summary`, `notice`; comments keep the connection open.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        },
        **documented(401, 404, 422, 503),
    },
)
async def get_events(request: Request, principal: Authenticated, chat: ChatId) -> Response:
    """Ends when the token expires or the gateway stops; connect again then."""
    deps, hub = deps_of(request), _hub_of(request)
    await access.check(deps, principal, chat)
    state = request.app.state
    if state.streams >= deps.streams:
        raise Problem(
            503, "too-many-streams", f"{deps.streams} streams are open.", headers={"Retry-After": "10"}
        )
    stack = AsyncExitStack()
    state.streams += 1
    deps.metrics.add("gateway_streams")

    def ended() -> None:
        state.streams -= 1
        deps.metrics.add("gateway_streams", -1)

    stack.callback(ended)
    try:
        subscription = await stack.enter_async_context(hub.subscribe(chat, deps.redis_timeout))
    except BaseException:
        await stack.aclose()
        raise
    return _EventStream(_events(deps, principal, chat, subscription), stack)


class _EventStream(StreamingResponse):
    """Releases its subscription however it ends, also where the body was never begun."""

    def __init__(self, events: AsyncIterator[bytes], resources: AsyncExitStack) -> None:
        super().__init__(
            events,
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
            media_type="text/event-stream",
        )
        self._resources = resources

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._resources:
            await super().__call__(scope, receive, send)


async def _events(
    deps: Deps, principal: Principal, chat: str, subscription: Subscription
) -> AsyncIterator[bytes]:
    yield b"retry: 2000\n\n"
    item: bytes | Signal | None = Signal.missed
    while True:
        if item is Signal.closed:
            return
        if item is Signal.missed:
            try:
                yield _event("snapshot", _summary(await access.snapshot(deps, principal, chat)))
            except (Problem, RedisError, TimeoutError) as error:
                # the head of the answer is sent: ending the stream makes the client connect, and be told, again
                _LOG.warning("event stream ended", extra={"error": type(error).__name__})
                return
        elif item is None:
            yield b": still here\n\n"
        elif (kind := from_json(item)["type"]) in _KINDS:
            yield _event(kind, item)
        left = deps.heartbeat
        if principal.expires is not None:
            left = min(left, principal.expires - deps.clock().timestamp())
            if left <= 0:
                return
        item = await subscription.next(left)


def _event(kind: str, data: bytes) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), data)


def _summary(snapshot: Snapshot) -> bytes:
    """What a panel compares with what it shows: counts, and the versions of the summaries in use."""
    view: dict[str, Any] = {
        "type": "snapshot",
        "version": snapshot.version,
        "live_messages": len(snapshot.live),
        "pending_messages": len(snapshot.pending),
        "summaries": [
            {"summary_id": summary.id, "tier": summary.tier, "version": summary.version}
            for summary in snapshot.summaries
        ],
    }
    return to_json(view)


def _hub_of(request: Request) -> Hub:
    hub: Hub = request.app.state.hub
    return hub
