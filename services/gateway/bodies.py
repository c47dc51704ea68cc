"""Request bodies, read with a bound: a body over it is refused before it is in memory."""

from __future__ import annotations

import gc
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from services.gateway.problems import Problem, field_errors

Body = TypeVar("Body", bound=BaseModel)


async def read(request: Request, limit: int) -> bytes:
    """The raw body. Raises Problem 413 over `limit` bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise _too_large(limit)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
    return b"".join(parts)


def parse(body: bytes) -> Any:
    """The JSON value. Raises Problem 400 where it is none (NaN, a lone surrogate, too deep nesting included)."""
    collecting = gc.isenabled()
    # a million small lists take a tenth of the time without the collector, and everybody waits for it
    gc.disable()
    try:
        return from_json(body, allow_inf_nan=False)
    except ValueError as error:
        # the parser's message tells the place and never quotes the text
        raise Problem(400, "not-json", f"The body is not JSON: {error}.") from None
    finally:
        if collecting:
            gc.enable()


def validated(body: bytes, model: type[Body]) -> Body:
    """The body as this model. Raises Problem 400, or 422 with the fields that are wrong."""
    try:
        return model.model_validate(parse(body))
    except ValidationError as error:
        errors = field_errors(error.errors(include_input=False, include_url=False))
        raise Problem(422, "invalid", "The body is wrong; see the fields.", errors=errors) from None


def described(model: type[BaseModel]) -> dict[str, Any]:
    """A body that is read by hand, for OpenAPI; services/gateway/openapi.py has to know the model as well."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _too_large(limit: int) -> Problem:
    return Problem(413, "too-large", f"The body is over the limit of {limit} bytes.")
