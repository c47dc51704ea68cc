"""A user's settings for a character (O1), and what becomes of its memories when it is deleted (M5)."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from schemas.memories import CharacterDeleted, MemorySettings, Status
from schemas.saved_memories import CharacterRemoved, CharacterSettings
from services.gateway import bodies, memory_reading, memory_views, users
from services.gateway.auth import Authenticated
from services.gateway.commands import PENDING, Asked, IdempotencyKey, applied, carry_out
from services.gateway.memories import BODY_BYTES, ETAG, etag
from services.gateway.memory_bodies import LearnFromChat
from services.gateway.ports import deps_of
from services.gateway.problems import Problem, documented
from services.gateway.users import CharacterId, UserId

_SETTINGS = "/v1/users/{user:path}/characters/{character:path}/settings"
router = APIRouter()


@router.get(
    _SETTINGS,
    response_class=Response,
    summary="Settings of a user for a character",
    responses={
        200: {"model": CharacterSettings, "description": "As they are, or by default."},
        **documented(401, 403, 404, 422, 503),
    },
)
async def get_settings(
    request: Request, principal: Authenticated, user: UserId, character: CharacterId
) -> Response:
    """`learn_from_chat` is on until it is switched off."""
    users.check(principal, user)
    async with deps_of(request).store() as redis:
        stored = await memory_reading.setting(redis, user, character)
    return Response(to_json(memory_views.settings(character, stored)), media_type="application/json")


@router.put(
    _SETTINGS,
    response_class=Response,
    summary="Switch learning from chats with a character",
    responses={
        200: {"model": CharacterSettings, "description": "It is so now.", "headers": ETAG},
        **PENDING,
        **documented(400, 401, 403, 404, 409, 413, 422, 503),
    },
    openapi_extra=bodies.described(LearnFromChat),
)
async def put_settings(
    request: Request,
    principal: Authenticated,
    user: UserId,
    character: CharacterId,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Off: nothing is saved from chats with the character, and nothing saved is read there. 409: it was deleted."""
    users.check(principal, user)
    body = await bodies.read(request, BODY_BYTES)
    learn = bodies.validated(body, LearnFromChat).learn_from_chat
    result = await carry_out(
        Asked(request, principal, user, idempotency_key, body),
        lambda envelope: MemorySettings(**envelope, character=character, learn_from_chat=learn),
    )
    if isinstance(result, Response):
        return result
    applied(result)
    view = CharacterSettings(character=character, learn_from_chat=learn, deleted=False)
    return Response(to_json(view), 200, {"ETag": etag(result.version)}, "application/json")


@router.delete(
    "/v1/users/{user:path}/characters/{character:path}",
    response_class=Response,
    summary="A character was deleted",
    responses={
        200: {"model": CharacterRemoved, "description": "Its memories are global.", "headers": ETAG},
        **PENDING,
        **documented(400, 401, 403, 404, 405, 409, 422, 503),
    },
)
async def delete_character(
    request: Request,
    principal: Authenticated,
    user: UserId,
    character: CharacterId,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Its memories become global, pins included, the newest first. What finds no room there is in the history, from
    which it can be restored; `notice` says so."""
    users.check(principal, user)
    if character.endswith("/settings"):
        # the path of the settings, which are never deleted
        raise Problem(405, "method-not-allowed", "Method Not Allowed", headers={"Allow": "GET, PUT"})
    result = await carry_out(
        Asked(request, principal, user, idempotency_key),
        lambda envelope: CharacterDeleted(**envelope, character=character),
    )
    if isinstance(result, Response):
        return result
    view = CharacterRemoved(
        command_id=result.command_id,
        version=result.version,
        memories=sum(each.status is Status.applied for each in applied(result)),
        notice=result.notice,
    )
    return Response(to_json(view), 200, {"ETag": etag(result.version)}, "application/json")
