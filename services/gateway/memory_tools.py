"""Tools for a model that replies: their definitions, and a check of their calls before the reply is done (M7).

The check changes nothing. What counts is the turn event, in which the accepted operations are sent as `memory.ops`; the
agent holds them to the same rules.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from schemas.chat import ChatKind, ChatRef
from schemas.memories import Author, MemoryOps, OpResult, Source, Status
from schemas.saved_memories import CallChecked, CallsChecked, Tools
from services.drafts import reading
from services.failures import Transient
from services.gateway import bodies, users
from services.gateway.auth import Authenticated, Principal
from services.gateway.context import ChatId
from services.gateway.memory_bodies import ToolCall, ToolCalls
from services.gateway.ports import Deps, deps_of
from services.gateway.problems import Problem, documented, moving, unknown_chat
from services.memories import tools
from services.memories.service import Memories

BODY_BYTES = 524_288
"""Of the calls of one reply: up to 50 with 500 characters each."""

router = APIRouter()


@router.get("/v1/tools/memory", summary="Tools with which a model keeps memories", responses=documented(401))
async def get_tools(principal: Authenticated) -> Tools:
    """For the `tools` of a chat completion. The ids of memories are in the context's part `memories`."""
    return tools.TOOLS


class _Writer(NamedTuple):
    """Who replies where, and in whose memories: `user` '' for nobody's."""

    user: str
    chat: ChatRef
    character: str | None


@router.post(
    "/v1/chats/{chat:path}/memory-ops",
    response_class=Response,
    summary="Check a model's calls of the memory tools",
    responses={
        200: {"model": CallsChecked, "description": "One entry per call, in order."},
        **documented(400, 401, 403, 404, 413, 422, 503),
    },
    openapi_extra=bodies.described(ToolCalls),
)
async def post_memory_ops(request: Request, principal: Authenticated, chat: ChatId) -> Response:
    """Nothing is changed. `op` of an accepted call belongs into `memory.ops` of the turn event, in the same order;
    `error` is what to answer the model. Calls that come later in the same reply are sent with the `ops` of those before
    them, so that they can change what was saved a moment ago. A chat that has no turn yet may be asked about as well."""
    deps = deps_of(request)
    body = bodies.validated(await bodies.read(request, BODY_BYTES), ToolCalls)
    writer = await _writer(deps, principal, chat, body)
    off = _off(writer)
    if off is not None:
        checked = [_failed(call, off) for call in body.calls]
    else:
        checked = await _checked(deps, writer, body)
    return Response(to_json(CallsChecked(calls=tuple(checked))), media_type="application/json")


async def _writer(deps: Deps, principal: Principal, chat: str, body: ToolCalls) -> _Writer:
    """Raises Problem 404 for a chat of somebody else, 403 for memories of somebody else, 422 for a character that is
    not in the chat."""
    async with deps.store() as redis:
        found = await reading.chat(redis, chat)
    if found is not None and not principal.may_access(found.owner):
        raise unknown_chat()
    if body.user is not None:
        users.check(principal, body.user)
    user = body.user or (found.owner if found is not None else principal.user)
    if user is None:
        error = {"field": "/user", "message": "is missing: the chat has no turn yet"}
        raise Problem(422, "invalid", "Whose memories is not known.", errors=[error])
    if found is None:
        named = (body.character,) if body.character is not None else ()
        return _Writer(user, ChatRef(id=chat, characters=named), body.character)
    characters = found.ref.characters
    if body.character is not None and body.character not in characters:
        error = {"field": "/character", "message": "is not one of the chat's characters"}
        raise Problem(422, "invalid", "The character is not in the chat.", errors=[error])
    return _Writer(user, found.ref, body.character or next(iter(characters), None))


def _off(writer: _Writer) -> str | None:
    """Why nothing can be saved (O3, O4)."""
    if writer.chat.kind is ChatKind.bounty:
        return "chat: memory is off in a bounty chat"
    return "user: is signed out, nothing is saved" if not writer.user else None


async def _checked(deps: Deps, writer: _Writer, body: ToolCalls) -> list[CallChecked]:
    ops = [
        tools.operation(
            call.name, call.arguments, writer.character, f"mem-{deps.new_id().replace('-', '')[:12]}"
        )
        for call in body.calls
    ]
    usable = [op for op in ops if not isinstance(op, str)]
    command = MemoryOps(
        id=deps.new_id(),
        at=deps.clock(),
        user_id=writer.user,
        by=Author.character,
        character=writer.character,
        characters=writer.chat.characters,
        source=Source(chat=writer.chat.id),
        ops=(*body.ops, *usable),
    )
    async with deps.store() as redis:
        try:
            result = await Memories(redis, deps.counter(), deps.clock).preview(command)
        except Transient:
            raise moving("The memories change") from None
    results = iter(result.results[len(body.ops) :])
    return [
        _failed(call, op) if isinstance(op, str) else _view(call, op, next(results))
        for call, op in zip(body.calls, ops, strict=True)
    ]


def _failed(call: ToolCall, error: str) -> CallChecked:
    return CallChecked(
        id=call.id, name=call.name, ok=False, error=error, status=Status.refused, memory_id=None, op=None
    )


def _view(call: ToolCall, op: dict[str, Any], result: OpResult) -> CallChecked:
    if result.status is Status.refused:
        return _failed(call, result.reason or "")
    return CallChecked(
        id=call.id,
        name=call.name,
        ok=True,
        error=None,
        status=result.status,
        memory_id=result.memory_id,
        # what is there already may be about to be taken back: whether it is an echo, the agent decides again
        op=op,
    )
