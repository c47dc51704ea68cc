"""POST /v1/audit and /v1/audit/deleted: check the stack from inside, where its ledger is open. For services only."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field

from schemas.base import Id
from services.gateway.auth import Authenticated
from services.gateway.ports import deps_of
from services.gateway.problems import Problem, documented

router = APIRouter()


class AuditFinding(BaseModel):
    """One thing that is wrong. `chat` is empty for what concerns the ledger or a user's saved memories."""

    chat: str
    user: str = Field(default="", description="Whose saved memories it is about; else empty.")
    check: str
    detail: str = Field(description="Numbers and ids; never the text of a chat.")
    severity: str = Field(description="`error`, or `warning` for what may be right while the stack runs.")


class AuditReport(BaseModel):
    """What was read and what is wrong."""

    ok: bool = Field(description="No errors; warnings do not count.")
    at_rest: bool
    ledger: bool = Field(description="Whether the ledger was read.")
    read: dict[str, int] = Field(description="How many of what were read.")
    errors: int
    warnings: int
    findings: list[AuditFinding] = Field(description="At most 1,000; `errors` and `warnings` count all.")


@router.post("/v1/audit", summary="Check what is stored", responses=documented(401, 403, 404, 422, 503))
async def post_audit(
    request: Request,
    principal: Authenticated,
    chat: Annotated[Id | None, Query(description="One chat; by default all of them.")] = None,
    user: Annotated[Id | None, Query(description="One user's memories; by default those of all.")] = None,
) -> AuditReport:
    """Reads every chat and every user's memories: it takes its time, and takes it from the pipeline. With one of
    `chat` and `user` it reads nothing of the other kind. 403 for user tokens."""
    if principal.user is not None:
        raise Problem(403, "forbidden", "An audit needs a service token.")
    audit = deps_of(request).audit
    if audit is None:
        raise Problem(404, "no-audit", "This gateway cannot audit; run `afterturn audit` beside the stores.")
    report = await audit(chat, user)
    return AuditReport.model_validate(report.as_dict())


class SearchedView(BaseModel):
    """So many of these were looked at."""

    store: str = Field(description="`redis`, `clickhouse`, or a topic.")
    what: str
    number: int


class FoundView(BaseModel):
    """Something of the chat. Keys, places and numbers; never the text of a chat."""

    store: str = Field(description="`redis`, `clickhouse`, or a topic.")
    detail: str


class DeletedReport(BaseModel):
    """What was searched for a deleted chat, what is left of it, and what is kept by rule."""

    ok: bool = Field(description="Nothing is left.")
    chat: str
    known: bool = Field(
        description="Something tells that there was such a chat; else the id may be a wrong one."
    )
    searched: list[SearchedView]
    left: list[FoundView]
    kept: list[FoundView]


@router.post(
    "/v1/audit/deleted",
    summary="Prove that a deleted chat is gone",
    responses=documented(401, 403, 404, 422, 503),
)
async def post_audit_deleted(
    request: Request,
    principal: Authenticated,
    chat: Annotated[Id, Query(description="The deleted chat.")],
) -> DeletedReport:
    """Searches all of Redis, the ledger and the log: it takes its time, and takes it from the pipeline. 403 for user
    tokens."""
    if principal.user is not None:
        raise Problem(403, "forbidden", "This search needs a service token.")
    search = deps_of(request).verify_deleted
    if search is None:
        raise Problem(
            404, "no-audit", "This gateway cannot search; run `afterturn verify-deleted` beside the stores."
        )
    return DeletedReport.model_validate((await search(chat)).as_dict())
