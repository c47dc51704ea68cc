"""GET /v1/chats/{chat}/context: what to put before the user's next message."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic_core import to_json

from schemas import limits
from schemas.base import Id
from schemas.context import ContextView
from services.context.policy import assemble
from services.context.views import context_view
from services.gateway import access
from services.gateway.auth import Authenticated
from services.gateway.ports import deps_of
from services.gateway.problems import documented

router = APIRouter()
ChatId = Annotated[Id, Path(description="The chat's id; `/` in it as %2F or as it is.")]
_Tokens = Annotated[int | None, Query(gt=0, le=limits.CONTEXT_WINDOW_TOKENS)]
_Reserve = Annotated[int, Query(ge=0, le=limits.CONTEXT_WINDOW_TOKENS)]


@router.get(
    "/v1/chats/{chat:path}/context",
    response_class=Response,
    summary="The context of the next reply",
    responses={
        200: {"model": ContextView, "description": "All five parts, in the order of the prompt."},
        **documented(401, 404, 422, 503),
    },
)
async def get_context(
    request: Request,
    principal: Authenticated,
    chat: ChatId,
    model_context: _Tokens = None,
    reserve: _Reserve = 0,
) -> Response:
    """`model_context`: window of the model that will answer, by default that of the chat's last model.
    `reserve`: tokens of it to keep free, for the character card, the new message and the answer."""
    deps = deps_of(request)
    snapshot = await access.snapshot(deps, principal, chat)
    context = assemble(snapshot, model_context, reserve, lambda text: deps.counter()(text))
    return Response(to_json(context_view(snapshot, context)), media_type="application/json")
