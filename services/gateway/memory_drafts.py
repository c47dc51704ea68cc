"""Memories that are drafted, looked over by the user, and then saved as pins (M7).

Nothing is drafted from a chat whose memory is off, and nothing drafted there is saved (O1, O3, O4).
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from schemas.memories import GLOBAL, Author, MemoryOps, Source, scope_of
from schemas.saved_memories import DraftsSaved, DraftsView, DraftView, MisfitView
from schemas.usage import Stage
from services.drafts import policy, reading
from services.drafts.booking import Use
from services.drafts.port import Draft, Drafts
from services.failures import Transient
from services.gateway import bodies, memory_reading, memory_views, users
from services.gateway.auth import Authenticated, Principal
from services.gateway.commands import PENDING, Asked, IdempotencyKey, applied, carry_out
from services.gateway.context import ChatId
from services.gateway.draft_uses import DraftUses
from services.gateway.idempotency import once
from services.gateway.memories import BODY_BYTES, ETAG, etag
from services.gateway.memory_bodies import ChosenDraft, Describe, DraftMessages, SaveDrafts
from services.gateway.memory_reading import Listed
from services.gateway.ports import Deps, deps_of
from services.gateway.problems import Problem, documented, unknown_chat
from services.gateway.users import UserId
from services.memories import caps
from services.summaries.port import SourceMessage

ANSWER_SECONDS = 600
"""A model that drafts has answered, or was given up, after so long."""

SAVE_BYTES = 1_048_576
"""The body of drafts to be saved."""

_LOG = logging.getLogger(__name__)
_DRAFTED: dict[int | str, dict[str, Any]] = {
    200: {"model": DraftsView, "description": "Drafts; nothing is saved yet."}
}
router = APIRouter()


@router.post(
    "/v1/users/{user:path}/memories/generate",
    response_class=Response,
    summary="Draft memories from a description",
    responses={**_DRAFTED, **documented(400, 401, 403, 404, 409, 413, 422, 503)},
    openapi_extra=bodies.described(Describe),
)
async def post_generate(
    request: Request, principal: Authenticated, user: UserId, idempotency_key: IdempotencyKey = None
) -> Response:
    """Reads no chat. Costs credits where a model drafts; a repeat with the same Idempotency-Key does not."""
    users.check(principal, user)
    deps = deps_of(request)
    body = await bodies.read(request, BODY_BYTES)
    asked = bodies.validated(body, Describe)

    async def make() -> bytes:
        use = _use(deps, user, Stage.generation, character=asked.character)
        drafts = await _drafted(request, use, lambda: deps.drafting.from_description(asked.description))
        listed, scope = await _scope(deps, user, asked.scope or _own(asked.character))
        return to_json(_view(drafts.drafts, scope, listed, drafts.model, chat=None))

    whole = b" ".join((b"generate", user.encode(), body))
    return await once(deps, principal, idempotency_key, whole, make, under_way=ANSWER_SECONDS)


@router.post(
    "/v1/chats/{chat:path}/memories/draft",
    response_class=Response,
    summary="Draft memories from messages",
    responses={**_DRAFTED, **documented(400, 401, 404, 409, 413, 422, 503)},
    openapi_extra=bodies.described(DraftMessages),
)
async def post_draft(request: Request, principal: Authenticated, chat: ChatId) -> Response:
    """Of messages that are live, pending or summarised. 409: memory is off in this chat. Drafts cost credits where a model
    writes them; the messages themselves never do."""
    deps = deps_of(request)
    body = await bodies.read(request, BODY_BYTES)
    asked = bodies.validated(body, DraftMessages)
    found = await _chat(deps, principal, chat)
    character = next(iter(found.ref.characters), None)
    listed, scope = await _scope(deps, found.owner, asked.scope or _own(character))
    _refuse(policy.refusal(found.ref, found.owner, scope, listed.off))
    async with deps.store() as redis:
        messages = await reading.messages(redis, chat, asked.messages)
    _refuse_missing(asked.messages, messages)

    # no answer is kept for a repeat: it would hold text of the chat that may be taken back meanwhile
    drafts, model = policy.originals(messages), None
    if asked.mode == "drafts":
        use = _use(deps, found.owner, Stage.draft, chat=chat, character=character)
        made = await _drafted(request, use, lambda: deps.drafting.from_messages(messages))
        drafts, model = made.drafts, made.model
    return Response(to_json(_view(drafts, scope, listed, model, chat)), media_type="application/json")


@router.post(
    "/v1/users/{user:path}/memories/save",
    status_code=201,
    response_class=Response,
    summary="Save drafts, pinned",
    responses={
        201: {"model": DraftsSaved, "description": "All of them are saved.", "headers": ETAG},
        **PENDING,
        **documented(400, 401, 403, 404, 409, 413, 422, 503),
    },
    openapi_extra=bodies.described(SaveDrafts),
)
async def post_save(
    request: Request, principal: Authenticated, user: UserId, idempotency_key: IdempotencyKey = None
) -> Response:
    """All or none. 409: the scope has no room for that many pins, or memory is off in the chat that one is from."""
    users.check(principal, user)
    deps = deps_of(request)
    body = await bodies.read(request, SAVE_BYTES)
    asked = bodies.validated(body, SaveDrafts)
    result = await carry_out(
        Asked(request, principal, user, idempotency_key, body),
        lambda envelope: MemoryOps(
            **envelope,
            by=Author.user,
            ops=tuple(_save(draft, asked.scope) for draft in asked.drafts),
            together=True,
        ),
        check=lambda: _check(deps, user, asked),
    )
    if isinstance(result, Response):
        return result
    done = applied(result, tuple(f"/drafts/{place}" for place in range(len(asked.drafts))))
    async with deps.store() as redis:
        saved = await memory_reading.entries(redis, user, [each.memory_id for each in done if each.memory_id])
    view = DraftsSaved(
        command_id=result.command_id,
        version=result.version,
        memories=tuple(memory_views.memory(entry, deps.clock()) for entry in saved),
    )
    return Response(to_json(view), 201, {"ETag": etag(result.version)}, "application/json")


def _save(draft: ChosenDraft, scope: str) -> dict[str, Any]:
    op: dict[str, Any] = {"op": "save", "text": draft.text, "scope": scope, "pinned": True}
    if draft.source is not None:
        op["source"] = draft.source.model_dump(mode="json")
    return op


# drafting


def _own(character: str | None) -> str:
    return GLOBAL if character is None else scope_of(character)


def _use(
    deps: Deps, user: str, stage: Stage, *, chat: str | None = None, character: str | None = None
) -> Use:
    return Use(deps.new_id(), deps.clock(), user, stage, deps.drafting.model, chat, character)


async def _drafted(request: Request, use: Use, ask: Callable[[], Awaitable[Drafts]]) -> Drafts:
    """What the drafter answers, and what it cost booked. Raises Problem 503 where it does not answer."""
    uses: DraftUses = request.app.state.draft_uses
    try:
        return await uses.asked(use, ask)
    except Transient as failure:
        _LOG.warning("no drafts", extra={"error": type(failure).__name__})
        raise Problem(
            503, "no-drafts", "The model gave no usable answer; try again.", headers={"Retry-After": "10"}
        ) from None


def _view(
    drafts: Sequence[Draft], scope: str, listed: Listed, model: str | None, chat: str | None
) -> DraftsView:
    pinned = caps.pins(listed.scopes[scope].values())
    wrong = policy.misfits([draft.text for draft in drafts], pinned)
    return DraftsView(
        scope=scope,
        pinned=pinned,
        model=model,
        drafts=tuple(
            DraftView(
                text=draft.text,
                characters=len(draft.text),
                fits=not errors,
                errors=tuple(MisfitView(**error._asdict()) for error in errors),
                source=None if chat is None else Source(chat=chat, messages=draft.messages),
            )
            for draft, errors in zip(drafts, wrong, strict=True)
        ),
    )


async def _scope(deps: Deps, user: str, scope: str) -> tuple[Listed, str]:
    """The scope that drafts are for, with its entries; that of a deleted character is the global one."""
    async with deps.store() as redis:
        listed = await memory_reading.listed(redis, user, (GLOBAL, scope))
    return listed, listed.home(scope)


async def _chat(deps: Deps, principal: Principal, chat: str) -> reading.Chat:
    async with deps.store() as redis:
        found = await reading.chat(redis, chat)
    if found is None or not principal.may_access(found.owner):
        raise unknown_chat()
    return found


def _refuse(reason: str | None, place: str = "/chat") -> None:
    if reason is not None:
        errors = [{"field": place, "message": reason}]
        raise Problem(409, "memory-off", f"Memory is off: {reason}.", errors=errors)


def _refuse_missing(ids: Iterable[str], found: Iterable[SourceMessage], place: str = "") -> None:
    """Raises Problem 422 where the chat does not have all of the messages."""
    missing = set(reading.missing(ids, found))
    errors = [
        {"field": f"{place}/messages/{number}", "message": "is not a message of the chat"}
        for number, id in enumerate(ids)
        if id in missing
    ]
    if errors:
        raise Problem(422, "unknown-message", "The chat does not have all of the messages.", errors=errors)


# saving


async def _check(deps: Deps, user: str, asked: SaveDrafts) -> None:
    """Raises Problem 409 where the drafts do not fit, or memory is off in a chat that they are from; 422 where that
    chat is not the user's, or has the messages no more."""
    listed, scope = await _scope(deps, user, asked.scope)
    wrong = policy.misfits([draft.text for draft in asked.drafts], caps.pins(listed.scopes[scope].values()))
    errors = [
        {**misfit._asdict(), "field": f"/drafts/{place}/{misfit.field}"}
        for place, each in enumerate(wrong)
        for misfit in each
    ]
    if errors:
        raise Problem(409, "refused", "The drafts do not fit; none is saved.", errors=errors)
    chats: Mapping[str, reading.Chat | None] = {
        chat: await _found(deps, chat)
        for chat in dict.fromkeys(draft.source.chat for draft in asked.drafts if draft.source is not None)
    }
    for place, draft in enumerate(asked.drafts):
        if draft.source is None:
            continue
        field = f"/drafts/{place}/source/chat"
        found = chats[draft.source.chat]
        if found is None or found.owner not in ("", user):
            errors = [{"field": field, "message": "is not a chat of the user"}]
            raise Problem(
                422, "unknown-chat", "A draft is from a chat that is not the user's.", errors=errors
            )
        _refuse(policy.refusal(found.ref, found.owner, scope, listed.off), field)
        if draft.source.messages:
            # they may have been taken back since they were drafted from
            async with deps.store() as redis:
                messages = await reading.messages(redis, draft.source.chat, draft.source.messages)
            _refuse_missing(draft.source.messages, messages, f"/drafts/{place}/source")


async def _found(deps: Deps, chat: str) -> reading.Chat | None:
    async with deps.store() as redis:
        return await reading.chat(redis, chat)
