"""Saved memories of a user: read, added, edited, pinned, moved and deleted by the user (M1, M3, M7, M8)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query, Request, Response
from pydantic_core import to_json

from schemas.base import Id
from schemas.memories import GLOBAL, Author, MemoryChanged, MemoryOps, Scope, Status, scope_of
from schemas.saved_memories import MemoriesView, MemoryWritten
from services.gateway import bodies, memory_reading, memory_views, users
from services.gateway.auth import Authenticated
from services.gateway.commands import PENDING, Asked, IdempotencyKey, applied, carry_out
from services.gateway.memory_bodies import MemoryEdit, NewMemory
from services.gateway.ports import Deps, deps_of
from services.gateway.problems import documented
from services.gateway.users import UserId

BODY_BYTES = 65_536
"""The body of one change: a memory has 500 characters."""

MemoryId = Annotated[Id, Path(description="The memory's id; `/` in it as %2F or as it is.")]
ETAG: dict[str, Any] = {
    "ETag": {"description": "Changes with the memories of the user.", "schema": {"type": "string"}}
}
WRITTEN: dict[int | str, dict[str, Any]] = {
    200: {"model": MemoryWritten, "description": "It is so now.", "headers": ETAG},
    **PENDING,
}
router = APIRouter()


@router.get(
    "/v1/users/{user:path}/memories",
    response_class=Response,
    summary="Saved memories",
    responses={
        200: {"model": MemoriesView, "description": "Pins first, each newest first.", "headers": ETAG},
        304: {"description": "Nothing changed since the ETag of If-None-Match.", "headers": ETAG},
        **documented(401, 403, 404, 422, 503),
    },
)
async def get_memories(
    request: Request,
    principal: Authenticated,
    user: UserId,
    scope: Annotated[Scope | None, Query(description="One scope alone.")] = None,
    character: Annotated[
        Id | None, Query(description="The scopes that this character sees: its own and global.")
    ] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Without `scope` and `character`: all of them. `recent` is not part of the ETag."""
    users.check(principal, user)
    deps = deps_of(request)
    wanted = _scopes(scope, character)
    async with deps.store() as redis:
        if if_none_match is not None:
            tag = etag(await memory_reading.version(redis, user))
            if tag in (each.strip() for each in if_none_match.split(",")):
                return Response(status_code=304, headers={"ETag": tag})
        listed = await memory_reading.listed(redis, user, wanted)
    asked = memory_views.character_asked(scope, character)
    view = memory_views.memories(user, listed, asked, deps.clock())
    return Response(to_json(view), media_type="application/json", headers={"ETag": etag(listed.version)})


def _scopes(scope: str | None, character: str | None) -> tuple[str, ...] | None:
    if scope is not None:
        return (scope,)
    return (GLOBAL, scope_of(character)) if character is not None else None


def etag(version: int) -> str:
    """Of all answers about memories at this version."""
    return f'W/"{version}"'


@router.post(
    "/v1/users/{user:path}/memories",
    status_code=201,
    response_class=Response,
    summary="Add a memory",
    responses={
        201: {"model": MemoryWritten, "description": "It is saved.", "headers": ETAG},
        **PENDING,
        **documented(400, 401, 403, 404, 409, 413, 422, 503),
    },
    openapi_extra=bodies.described(NewMemory),
)
async def post_memory(
    request: Request, principal: Authenticated, user: UserId, idempotency_key: IdempotencyKey = None
) -> Response:
    """Into a full scope it displaces the unpinned memory that was updated longest ago; `displaced` names it.
    409: the scope has all the pins it may have."""
    users.check(principal, user)
    body = await bodies.read(request, BODY_BYTES)
    new = bodies.validated(body, NewMemory)
    asked = Asked(request, principal, user, idempotency_key, body)
    return await change(asked, {"op": "save", **new.model_dump()}, status=201)


@router.patch(
    "/v1/users/{user:path}/memories/{memory_id:path}",
    response_class=Response,
    summary="Edit, pin, unpin or move a memory",
    responses={**WRITTEN, **documented(400, 401, 403, 404, 409, 413, 422, 503)},
    openapi_extra=bodies.described(MemoryEdit),
)
async def patch_memory(
    request: Request,
    principal: Authenticated,
    user: UserId,
    memory_id: MemoryId,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """All that the body names changes together, or nothing does (409)."""
    users.check(principal, user)
    body = await bodies.read(request, BODY_BYTES)
    edit = bodies.validated(body, MemoryEdit)
    asked = Asked(request, principal, user, idempotency_key, body)
    return await change(asked, *operations(memory_id, edit))


def operations(memory_id: str, edit: MemoryEdit) -> Iterator[dict[str, Any]]:
    """In an order in which a pin never asks for room in a scope that it leaves, or does not stay pinned in."""
    if edit.text is not None:
        yield {"op": "update", "id": memory_id, "text": edit.text}
    if edit.pinned is False:
        yield {"op": "unpin", "id": memory_id}
    if edit.scope is not None:
        yield {"op": "move", "id": memory_id, "scope": edit.scope}
    if edit.pinned:
        yield {"op": "pin", "id": memory_id}


@router.delete(
    "/v1/users/{user:path}/memories/{memory_id:path}",
    response_class=Response,
    summary="Delete a memory",
    responses={**WRITTEN, **documented(400, 401, 403, 404, 422, 503)},
)
async def delete_memory(
    request: Request,
    principal: Authenticated,
    user: UserId,
    memory_id: MemoryId,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """It stays in the history, from which it can be restored."""
    users.check(principal, user)
    asked = Asked(request, principal, user, idempotency_key)
    return await change(asked, {"op": "delete", "id": memory_id})


async def change(asked: Asked, *ops: dict[str, Any], status: int = 200) -> Response:
    """The operations of a user, all or none, and the memory that they leave."""
    result = await carry_out(
        asked, lambda envelope: MemoryOps(**envelope, by=Author.user, ops=ops, together=True)
    )
    if isinstance(result, Response):
        return result
    applied(result)
    view = await written(asked.deps, asked.user, result)
    return Response(to_json(view), status, {"ETag": etag(view.version)}, "application/json")


async def written(deps: Deps, user: str, result: MemoryChanged) -> MemoryWritten:
    """The answer about the one memory that a command was about."""
    done = result.results
    memory_id = done[-1].memory_id
    async with deps.store() as redis:
        entry = await memory_reading.entry(redis, user, memory_id) if memory_id is not None else None
    changes = [each.change for each in done if each.change is not None]
    statuses = {each.status for each in done}
    return MemoryWritten(
        command_id=result.command_id,
        version=result.version,
        status=Status.applied if Status.applied in statuses else Status.unchanged,
        memory=memory_views.memory(entry, deps.clock()) if entry is not None else None,
        change=max(changes, default=None),
        displaced=next((each.displaced for each in done if each.displaced is not None), None),
    )
