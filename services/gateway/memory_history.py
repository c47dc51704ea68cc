"""The history of a user's saved memories, and what is restored from it (M11)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic_core import to_json

from schemas.base import Id
from schemas.saved_memories import HistoryView
from services.gateway import memory_views, users
from services.gateway.auth import Authenticated
from services.gateway.commands import Asked, IdempotencyKey
from services.gateway.memories import WRITTEN, change
from services.gateway.ports import deps_of
from services.gateway.problems import Problem, documented
from services.gateway.users import UserId
from services.memories import store
from services.memories.state import Change

PAGE = 200
"""Changes in one answer, at most."""

_NUMBERS = 2**53
router = APIRouter()


@router.get(
    "/v1/users/{user:path}/memories/history",
    response_class=Response,
    summary="The history of saved memories",
    responses={
        200: {"model": HistoryView, "description": "The newest change first."},
        **documented(401, 403, 404, 422, 503),
    },
)
async def get_history(
    request: Request,
    principal: Authenticated,
    user: UserId,
    memory: Annotated[Id | None, Query(description="One memory alone, also one that is gone.")] = None,
    before: Annotated[int | None, Query(ge=1, le=_NUMBERS, description="Changes before this number.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE)] = 50,
) -> Response:
    """Page by page: `next` of an answer is `before` of the next request."""
    users.check(principal, user)
    async with deps_of(request).store() as redis:
        if memory is None:
            found = await store.read_history(redis, user, before, limit + 1)
        else:
            found = await store.read_entry_history(redis, user, memory)
    if memory is not None:
        if not found:
            raise Problem(404, "unknown-memory", "There has never been such a memory.")
        found = [each for each in found if before is None or each.number < before][: limit + 1]
    view = HistoryView(
        user_id=user,
        changes=tuple(map(memory_views.change, found[:limit])),
        next=_next(found, limit),
    )
    return Response(to_json(view), media_type="application/json")


def _next(found: list[Change], limit: int) -> int | None:
    return found[limit - 1].number if len(found) > limit else None


@router.post(
    "/v1/users/{user:path}/memories/history/{change}/restore",
    response_class=Response,
    summary="Restore what a change replaced or removed",
    responses={**WRITTEN, **documented(400, 401, 403, 404, 409, 422, 503)},
)
async def post_restore(
    request: Request,
    principal: Authenticated,
    user: UserId,
    change_number: Annotated[int, Path(alias="change", ge=1, le=_NUMBERS)],
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Into a full scope it displaces another one, as a new memory would. 409: there is nothing to restore, or no pin
    is left for a memory that was pinned."""
    users.check(principal, user)
    asked = Asked(request, principal, user, idempotency_key)
    return await change(asked, {"op": "restore", "change": change_number})
