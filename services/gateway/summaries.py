"""PATCH /v1/chats/{chat}/summaries/{id}: a person's edit (S6)."""

from __future__ import annotations

import asyncio
import logging
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import to_json

from schemas.base import Id
from schemas.summaries import Body, Summary
from services.gateway import access, bodies
from services.gateway.auth import Authenticated
from services.gateway.context import ChatId
from services.gateway.ports import Deps, deps_of
from services.gateway.problems import Problem, documented, field_errors
from services.summaries.errors import Conflict, MergedAway, NotFound
from services.work import Work

EDIT_BYTES = 262_144
"""The body of an edit. The largest long-term memory has 16,000 tokens, about 64 KiB of English."""

_LOG = logging.getLogger(__name__)
_VERSION = re.compile(r'(?:W/)?"?([1-9][0-9]{0,17})"?')
_ETAG: dict[str, Any] = {"ETag": {"description": "The summary's version.", "schema": {"type": "string"}}}
router = APIRouter()


class SummaryEdit(BaseModel):
    """The new content: as text, or as a structured body. Exactly one of the two."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"oneOf": [{"required": ["text"]}, {"required": ["body"]}]}
    )

    text: str = Field(
        default="",
        pattern=r"\S",
        description="Rendered text; headings and lines it keeps stay what they were.",
    )
    body: Body = Body()

    @model_validator(mode="after")
    def _one(self) -> SummaryEdit:
        if len(self.model_fields_set) != 1:
            raise ValueError("exactly one of text and body")
        return self

    @property
    def content(self) -> Body | str:
        """The one that is given."""
        return self.text if "text" in self.model_fields_set else self.body


@router.patch(
    "/v1/chats/{chat:path}/summaries/{summary_id}",
    response_class=Response,
    summary="Edit a summary",
    responses={
        200: {"model": Summary, "description": "The summary as edited.", "headers": _ETAG},
        **documented(400, 401, 404, 410, 412, 413, 422, 428, 503),
    },
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/SummaryEdit"}}},
        }
    },
)
async def patch_summary(
    request: Request,
    principal: Authenticated,
    chat: ChatId,
    summary_id: Annotated[Id, Path()],
    if_match: Annotated[str | None, Header(description='The version that was read, as `3` or `"3"`.')] = None,
) -> Response:
    """412: somebody, or a merge, was faster; `version` in the problem is the one to read and edit again.
    410: the summary has been merged into another one."""
    deps = deps_of(request)
    await access.check(deps, principal, chat)
    version = _version(if_match)
    try:
        edit = SummaryEdit.model_validate(bodies.parse(await bodies.read(request, EDIT_BYTES)))
    except ValidationError as error:
        errors = field_errors(error.errors(include_input=False, include_url=False))
        raise Problem(422, "invalid", "The edit is wrong.", errors=errors) from None
    try:
        async with deps.store():
            summary, work = await deps.summaries.edit(
                chat, summary_id, version, edit.content, by=principal.name
            )
    except MergedAway:
        raise Problem(
            410, "merged-away", "This summary has been merged into another one; edit that."
        ) from None
    except NotFound:
        raise Problem(404, "unknown-summary", "The chat has no such summary in use.") from None
    except Conflict as conflict:
        raise Problem(
            412,
            "conflict",
            f"The summary is at version {conflict.current}.",
            headers={"ETag": f'"{conflict.current}"'},
            version=conflict.current,
        ) from None
    await _announce(deps, work)
    return Response(to_json(summary), media_type="application/json", headers={"ETag": f'"{summary.version}"'})


def _version(if_match: str | None) -> int:
    if if_match is None:
        raise Problem(
            428, "version-required", "If-Match: the version of the summary that was read is missing."
        )
    match = _VERSION.fullmatch(if_match.strip())
    if match is None:
        raise Problem(400, "wrong-version", "If-Match: one version, a number from 1.")
    return int(match[1])


async def _announce(deps: Deps, work: Work) -> None:
    """The edit is stored and holds. Unannounced it waits in the outbox for the chat's next merge."""
    try:
        async with asyncio.timeout(deps.publish_timeout):
            await deps.publisher.publish(work.publish)
            if work.confirmed is not None:
                await work.confirmed()
    except Exception as error:
        _LOG.warning("edit not announced yet", extra={"error": type(error).__name__})
