"""Query parameters that a route does not have are refused: a misspelt one would silently be its default."""

from __future__ import annotations

from fastapi import Request
from fastapi.routing import APIRoute

from services.gateway.problems import Problem


async def refuse_unknown(request: Request) -> None:
    """Raises Problem 422, each by its name."""
    if not request.query_params:
        return
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = {field.alias for field in route.dependant.query_params}
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if unknown:
        message = f"is none of {', '.join(sorted(known))}" if known else "there are none here"
        errors = [{"field": name, "message": message} for name in unknown]
        raise Problem(422, "invalid", "The request has wrong parameters.", errors=errors)
