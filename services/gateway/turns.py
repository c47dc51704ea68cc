"""POST /v1/turns: events of chats for those who do not speak Kafka. What was accepted is in the log when the answer comes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel, Field, TypeAdapter, ValidationError
from pydantic_core import to_json

from schemas import limits
from schemas.base import Id
from schemas.delivery import Outgoing, Topics
from schemas.turns import TURN_EVENT, ChatForked, FinishedTurn, TurnEvent
from services.context import store
from services.deadletters.policy import BY
from services.gateway import bodies
from services.gateway.auth import Authenticated, Principal
from services.gateway.idempotency import once
from services.gateway.ports import Deps, deps_of
from services.gateway.problems import FieldError, Problem, documented, field_errors
from services.gateway.publishing import publish

BODY_BYTES = 4 * 1024 * 1024
"""One request, with all its events. The worst JSON of this size is decoded in a quarter of a second, and other requests
wait for it."""

_YIELD_EVERY = 25
"""Other requests get a turn after so many events have been validated."""

_EVENT_ID: TypeAdapter[str] = TypeAdapter(Id)
router = APIRouter()


class TurnItem(BaseModel):
    """What became of one event of the request, by its place in the list (from 0)."""

    index: int
    id: str | None = Field(description="The event's id, where it has a usable one.")
    status: Literal["accepted", "invalid", "forbidden"]
    errors: list[FieldError] = []


class TurnsAccepted(BaseModel):
    """Accepted events are in the log; refused ones are not, and their items say why."""

    accepted: int
    refused: int
    items: list[TurnItem]


class Checked(NamedTuple):
    """One event after validation: `record` where it is good, else `errors`."""

    id: str | None
    event: TurnEvent | None
    record: Outgoing | None
    errors: list[dict[str, Any]]
    status: str = "accepted"


@router.post(
    "/v1/turns",
    status_code=202,
    response_class=Response,
    summary="Record finished turns, and take things back",
    responses={
        202: {"model": TurnsAccepted, "description": "At least one event was accepted; see the items."},
        **documented(400, 401, 403, 409, 413, 422, 503),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "description": f"One event, or a list of up to {limits.BATCH_EVENTS}; {BODY_BYTES} bytes in all.",
            "content": {
                "application/json": {
                    "schema": {
                        "anyOf": [
                            {"$ref": "#/components/schemas/TurnEvent"},
                            {
                                "type": "array",
                                "items": {"$ref": "#/components/schemas/TurnEvent"},
                                "minItems": 1,
                                "maxItems": limits.BATCH_EVENTS,
                            },
                        ]
                    }
                }
            },
        }
    },
)
async def post_turns(
    request: Request,
    principal: Authenticated,
    idempotency_key: Annotated[str | None, Header(description="1 to 200 printable ASCII characters.")] = None,
) -> Response:
    """202 if at least one event was accepted, with one item per event. None accepted: 422, or 403 where all of them
    speak for somebody else. 503: the broker did not confirm; send all of it again with the same ids."""
    deps = deps_of(request)
    body = await bodies.read(request, BODY_BYTES)
    return await once(
        deps, principal, idempotency_key, body, lambda: _record(deps, principal, body), status=202
    )


async def _record(deps: Deps, principal: Principal, body: bytes) -> bytes:
    """Publishes what is good. Returns the answer's body; raises Problem where nothing was accepted."""
    value = bodies.parse(body)
    events = value if isinstance(value, list) else [value]
    if not 1 <= len(events) <= limits.BATCH_EVENTS:
        raise Problem(
            422,
            "wrong-batch",
            f"The list has {len(events)} events; a request takes 1 to {limits.BATCH_EVENTS}.",
        )
    checked = []
    for at, event in enumerate(events):
        if at % _YIELD_EVERY == _YIELD_EVERY - 1:
            await asyncio.sleep(0)
        checked.append(check(event, deps.clock().isoformat().replace("+00:00", "Z")))
    if principal.user is not None:
        checked = await _owned(deps, principal.user, checked)
    records = [each.record for each in checked if each.record is not None]
    if principal.user is not None:
        by = ((BY, principal.user.encode()),)
        records = [replace(record, headers=by) for record in records]
    items = [
        {"index": at, "id": each.id, "status": each.status, "errors": each.errors}
        for at, each in enumerate(checked)
    ]
    for each in checked:
        deps.metrics.add("gateway_events_total", outcome=each.status)
    if not records:
        if all(each.status == "forbidden" for each in checked):
            raise Problem(403, "forbidden", "The events speak for somebody else.", items=items)
        raise Problem(422, "invalid-events", "No event was accepted.", items=items)
    await publish(deps, records)
    return to_json({"accepted": len(records), "refused": len(items) - len(records), "items": items})


def check(value: Any, now: str) -> Checked:
    """One event. What is published is the event as it came, unknown fields included, with `at` filled in."""
    if not isinstance(value, dict):
        return _refused(None, "", "is not an object")
    try:
        event_id = _EVENT_ID.validate_python(value.get("id"), strict=True)
    except ValidationError:
        event_id = None
    try:
        event = TURN_EVENT.validate_python(value)
    except ValidationError as error:
        # the first place of an event whose type is known is that type, not a field
        errors = error.errors(include_input=False, include_url=False)
        known = not all(each["type"].startswith("union_tag") for each in errors)
        found = (
            field_errors(errors, 1)
            if known
            else [{**each, "field": "/type"} for each in field_errors(errors)]
        )
        return Checked(event_id, None, None, found, "invalid")
    if value.get("at") is None:
        value = {**value, "at": now}
    data = to_json(value)
    if len(data) > limits.EVENT_BYTES:
        return _refused(event.id, "", f"has {len(data)} bytes", limits.EVENT_BYTES)
    return Checked(event.id, event, Outgoing(Topics.TURNS, event.chat.id.encode(), data), [])


def _refused(event_id: str | None, field: str, message: str, limit: int | None = None) -> Checked:
    error: dict[str, Any] = {"field": field, "message": message}
    if limit is not None:
        error["limit"] = limit
    return Checked(event_id, None, None, [error], "invalid")


async def _owned(deps: Deps, user: str, checked: Sequence[Checked]) -> list[Checked]:
    """With a user token: the event is by this user, and about a chat that is theirs. Turns and forks may begin a chat;
    what takes something back, and what a fork is made of, is theirs already, or begun earlier in the same request."""
    chats = sorted({chat for each in checked if each.event is not None for chat in _chats(each.event)})
    owners: dict[str, str | None] = {}
    if chats:
        async with deps.store() as redis:
            owners.update(zip(chats, await store.owner(redis, chats), strict=True))
    result = []
    for each in checked:
        if (event := each.event) is not None:
            if event.user is None or event.user.id != user:
                each = _forbidden(each, "/user/id", "is not the user of the token")
            elif (wrong := _not_theirs(event, owners, user)) is not None:
                each = _forbidden(each, wrong, "is not a chat of the user")
            else:
                owners[event.chat.id] = user
        result.append(each)
    return result


def _chats(event: TurnEvent) -> tuple[str, ...]:
    return (event.chat.id, event.source.chat) if isinstance(event, ChatForked) else (event.chat.id,)


def _not_theirs(event: TurnEvent, owners: Mapping[str, str | None], user: str) -> str | None:
    """The field that names a chat which the event may not be about; None where there is none."""
    owner = owners[event.chat.id]
    begins = owner is None and isinstance(event, FinishedTurn | ChatForked)
    if owner != user and not begins:
        return "/chat/id"
    if isinstance(event, ChatForked) and owners[event.source.chat] != user:
        return "/source/chat"
    return None


def _forbidden(checked: Checked, field: str, message: str) -> Checked:
    return Checked(checked.id, checked.event, None, [{"field": field, "message": message}], "forbidden")
