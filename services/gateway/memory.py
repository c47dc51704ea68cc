"""GET /v1/chats/{chat}/memory: the tiers, what is live and pending, and how far summarising has come."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from pydantic_core import to_json

from schemas.memory_view import MemoryView
from services.context.memories import Status
from services.context.snapshot import Snapshot
from services.context.views import memory_view
from services.gateway import access
from services.gateway.auth import Authenticated
from services.gateway.context import ChatId
from services.gateway.ports import deps_of
from services.gateway.problems import documented

router = APIRouter()
_ETAG: dict[str, Any] = {
    "ETag": {
        "description": "Changes with the window, every summary and memory.",
        "schema": {"type": "string"},
    }
}


@router.get(
    "/v1/chats/{chat:path}/memory",
    response_class=Response,
    summary="What the chat remembers",
    responses={
        200: {"model": MemoryView, "description": "The chat's memory.", "headers": _ETAG},
        304: {"description": "Nothing changed since the ETag of If-None-Match.", "headers": _ETAG},
        **documented(401, 404, 422, 503),
    },
)
async def get_memory(
    request: Request,
    principal: Authenticated,
    chat: ChatId,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Ages are not part of the ETag."""
    deps = deps_of(request)
    snapshot, memories = await access.with_status(deps, principal, chat)
    tag = etag(snapshot, memories)
    if if_none_match is not None and tag in (each.strip() for each in if_none_match.split(",")):
        return Response(status_code=304, headers={"ETag": tag})
    view = memory_view(snapshot, deps.clock(), memories)
    return Response(to_json(view), media_type="application/json", headers={"ETag": tag})


def etag(snapshot: Snapshot, memories: Status) -> str:
    """A weak entity tag over everything that changes but time."""
    parts = [snapshot.generation, snapshot.version, snapshot.summarised, snapshot.chunks, memories]
    versions = [f"{summary.id}:{summary.version}" for summary in snapshot.summaries]
    return f'W/"{hashlib.sha256(repr((parts, versions)).encode()).hexdigest()[:20]}"'
