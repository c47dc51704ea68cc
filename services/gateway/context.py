"""GET /v1/chats/{chat}/context: what to put before the user's next message.

A frontend waits for this one before every reply. FastAPI solves the parameters of a route at a cost of several times
the validation itself, so this route takes the bare request and states its parameters to OpenAPI from the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from fastapi.routing import APIRoute
from pydantic import ConfigDict, Field, ValidationError

from schemas import limits
from schemas.base import Count, Id, Model
from schemas.context import ContextView
from services.context.policy import assemble
from services.context.views import context_json
from services.gateway import access
from services.gateway.auth import SECURITY, authenticate
from services.gateway.ports import deps_of
from services.gateway.problems import documented, invalid_parameters


class _Bare(APIRoute):
    """A route whose endpoint takes the request as it is: nothing is solved, nothing is serialised."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """What answers."""
        endpoint: Callable[[Request], Coroutine[Any, Any, Response]] = self.endpoint
        return endpoint


router = APIRouter(route_class=_Bare)
_CHAT = "The chat's id; `/` in it as %2F or as it is."
ChatId = Annotated[Id, Path(description=_CHAT)]


class ContextQuery(Model):
    """Parameters of a request for a context; a misspelt one is refused."""

    model_config = ConfigDict(extra="forbid")

    chat: Id = Field(description=_CHAT)
    model_context: int | None = Field(
        default=None,
        gt=0,
        le=limits.CONTEXT_WINDOW_TOKENS,
        description="Window of the model that will answer, in tokens; by default that of the chat's last model.",
    )
    reserve: Count = Field(
        default=0,
        le=limits.CONTEXT_WINDOW_TOKENS,
        description="Tokens to keep free: for the character card, the new message and the answer.",
    )
    user: Id | None = Field(
        default=None,
        description="Whose saved memories to read, for a service token; by default those of the chat's owner.",
    )


def _parameters() -> list[dict[str, Any]]:
    schema = ContextQuery.model_json_schema()
    return [
        {
            "name": name,
            "in": "path" if name == "chat" else "query",
            "required": name in schema["required"],
            "description": field.pop("description"),
            "schema": field,
        }
        for name, field in schema["properties"].items()
    ]


@router.get(
    "/v1/chats/{chat:path}/context",
    response_class=Response,
    summary="The context of the next reply",
    responses={
        200: {"model": ContextView, "description": "All six parts, in the order of the prompt."},
        **documented(401, 403, 404, 422, 503),
    },
    openapi_extra={"parameters": _parameters(), "security": SECURITY},
)
async def get_context(request: Request) -> Response:
    """Everything that fits into `model_context - reserve` tokens, and a list of what does not."""
    principal = authenticate(request)
    try:
        query = ContextQuery.model_validate({**request.query_params, **request.path_params})
    except ValidationError as error:
        raise invalid_parameters(error.errors(include_input=False, include_url=False)) from None
    deps = deps_of(request)
    snapshot, memories = await access.with_memories(deps, principal, query.chat, query.user)
    context = assemble(
        snapshot, query.model_context, query.reserve, lambda text: deps.counter()(text), memories
    )
    return Response(context_json(snapshot, context, memories), media_type="application/json")
