"""The OpenAPI document: generated from the routes, with the models of bodies that are read by hand."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from schemas.turns import TURN_EVENT
from services.gateway import memory_bodies
from services.gateway.problems import ProblemDocument
from services.gateway.summaries import SummaryEdit

_BODIES: tuple[type[BaseModel], ...] = (SummaryEdit, ProblemDocument, *memory_bodies.BODIES)


def document(app: FastAPI) -> dict[str, Any]:
    """The document, made once."""
    if app.openapi_schema is None:
        made = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        components = made["components"]["schemas"]
        for model in _BODIES:
            schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
            components.update(schema.pop("$defs", {}))
            components[model.__name__] = schema
        components["TurnEvent"] = _union(components)
        # errors of parameters are problem documents like all others
        for name in ("HTTPValidationError", "ValidationError"):
            components.pop(name, None)
        app.openapi_schema = made
    return app.openapi_schema


def _union(components: dict[str, Any]) -> dict[str, Any]:
    """All events of turns, told apart by their type; its default would make it optional."""
    union = TURN_EVENT.json_schema(ref_template="#/components/schemas/{model}")
    components.update(union.pop("$defs"))
    for reference in union["discriminator"]["mapping"].values():
        event = components[reference.rpartition("/")[2]]
        event["required"] = sorted({*event["required"], "type"})
    return union
