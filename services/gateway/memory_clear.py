"""POST /v1/users/{user}/memories/clear: a scope is emptied for good, its pins in a second call (M10)."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from schemas.memories import MemoryClear, Status
from schemas.saved_memories import Cleared
from services.gateway import bodies, users
from services.gateway.auth import Authenticated
from services.gateway.commands import PENDING, Asked, IdempotencyKey, carry_out, refusal
from services.gateway.memories import BODY_BYTES, ETAG, etag
from services.gateway.memory_bodies import ClearScope
from services.gateway.problems import Problem, documented
from services.gateway.users import UserId

router = APIRouter()


@router.post(
    "/v1/users/{user:path}/memories/clear",
    response_class=Response,
    summary="Clear a scope",
    responses={
        200: {"model": Cleared, "description": "They are gone, also from the history.", "headers": ETAG},
        **PENDING,
        **documented(400, 401, 403, 404, 409, 413, 422, 503),
    },
    openapi_extra=bodies.described(ClearScope),
)
async def post_clear(
    request: Request, principal: Authenticated, user: UserId, idempotency_key: IdempotencyKey = None
) -> Response:
    """The first call clears the unpinned memories and says how many pins it kept. A second one, with `pinned` and this
    number as `expected`, clears those. 409: it is another number by now; `kept_pins` is the one to confirm."""
    users.check(principal, user)
    body = await bodies.read(request, BODY_BYTES)
    clear = bodies.validated(body, ClearScope)
    result = await carry_out(
        Asked(request, principal, user, idempotency_key, body),
        lambda envelope: MemoryClear(**envelope, **clear.model_dump()),
    )
    if isinstance(result, Response):
        return result
    kept = result.kept_pins or 0
    refused = next((each for each in result.results if each.status is Status.refused), None)
    if refused is not None:
        reason = refused.reason or ""
        raise Problem(409, "pins-kept", reason, errors=[refusal(reason)], kept_pins=kept)
    view = Cleared(
        command_id=result.command_id,
        version=result.version,
        scope=clear.scope,
        cleared=sum(each.status is Status.applied for each in result.results),
        kept_pins=kept,
    )
    return Response(to_json(view), 200, {"ETag": etag(result.version)}, "application/json")
