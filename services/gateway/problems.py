"""Errors as RFC 9457 problem documents (`application/problem+json`). None quotes the text of a chat or a token."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from pydantic_core import to_json
from redis.exceptions import RedisError
from starlette.exceptions import HTTPException

from schemas.errors import said

MEDIA_TYPE = "application/problem+json"
RETRY_AFTER = "2"
"""Seconds after which a client may try again when a store or the broker is away."""

_LOG = logging.getLogger(__name__)
_LIMITS = ("max_length", "min_length", "le", "ge", "lt", "gt", "pattern")


class FieldError(BaseModel):
    """What is wrong with one field."""

    field: str = Field(description="JSON pointer into the event or body, or the name of a parameter.")
    message: str
    limit: int | float | str | None = Field(default=None, description="The limit that was not kept, if one.")


class ProblemDocument(BaseModel):
    """The body of every error. `type` names the kind of problem and does not change."""

    type: str = Field(description="urn:afterturn:problem:NAME")
    title: str
    status: int
    detail: str
    errors: list[FieldError] | None = None
    version: int | None = Field(default=None, description="With `conflict`: the version the summary has now.")
    items: list[dict[str, Any]] | None = Field(default=None, description="With refused turns: one per event.")
    result: str | None = Field(
        default=None,
        description="Where it is told what became of a change that may be carried out all the same.",
    )
    kept_pins: int | None = Field(default=None, description="With `pins-kept`: how many pins the scope has.")


class Problem(Exception):
    """Ends a request with a problem document."""

    def __init__(
        self,
        status: int,
        name: str,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        **members: Any,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.name = name
        self.detail = detail
        self.headers = headers
        self.members = members

    def response(self) -> Response:
        """The answer."""
        document = {
            "type": f"urn:afterturn:problem:{self.name}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
            **self.members,
        }
        return Response(to_json(document), self.status, self.headers, MEDIA_TYPE)


def unknown_chat() -> Problem:
    """The same for a chat that does not exist and one of somebody else: no answer tells which."""
    return Problem(404, "unknown-chat", "There is no such chat, or it is not yours.")


def unavailable(what: str) -> Problem:
    """A store or the broker is away."""
    return Problem(
        503,
        "unavailable",
        f"{what} does not answer.",
        headers={"Retry-After": RETRY_AFTER},
    )


def moving(what: str) -> Problem:
    """What is asked about does not stand still for long enough to be read."""
    return Problem(
        503, "unavailable", f"{what} faster than they can be read.", headers={"Retry-After": RETRY_AFTER}
    )


def field_errors(errors: Sequence[Any], skip: int = 0) -> list[dict[str, Any]]:
    """Errors of pydantic with the field as a JSON pointer, without the values. `skip` drops leading places."""
    found = []
    places = {error["loc"][:depth] for error in errors for depth in range(len(error["loc"]))}
    for error in errors:
        if error["type"] == "too_short" and error["loc"] in places:
            # a list is left at its first wrong element, and then counted
            continue
        place = [str(step).replace("~", "~0").replace("/", "~1") for step in error["loc"][skip:]]
        entry = {"field": "".join(f"/{step}" for step in place), "message": said(error)}
        for name in _LIMITS:
            limit = error.get("ctx", {}).get(name)
            if limit is not None:
                entry["limit"] = limit
        found.append(entry)
    return found


def invalid_parameters(errors: Sequence[Any]) -> Problem:
    """422 for parameters of the path, the query or the headers, by name."""
    named = [{**entry, "field": str(error["loc"][-1])} for error in errors for entry in field_errors([error])]
    return Problem(422, "invalid", "The request has wrong parameters.", errors=named)


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Responses of a route, for OpenAPI."""
    schema = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: schema}}
        for status in statuses
    }


def install(app: FastAPI) -> None:
    """Errors become problem documents; what nobody expected does in services/gateway/edge.py."""

    async def problem(_: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return error.response()

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return invalid_parameters(error.errors()).response()

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        name = {404: "no-such-route", 405: "method-not-allowed"}.get(error.status_code, "refused")
        detail = str(error.detail)
        if error.status_code == 404:
            detail = "There is no such route; /openapi.json has all of them."
        return Problem(error.status_code, name, detail, headers=error.headers).response()

    async def away(request: Request, error: Exception) -> Response:
        _LOG.warning("redis does not answer", extra={"error": type(error).__name__})
        return unavailable("Redis").response()

    app.add_exception_handler(Problem, problem)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RedisError, away)
    app.add_exception_handler(TimeoutError, away)
