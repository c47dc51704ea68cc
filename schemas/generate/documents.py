"""All generated documents, as text by file name."""

from __future__ import annotations

import json
from typing import Any

from pydantic import TypeAdapter

from schemas.delivery import Topics
from schemas.generate.asyncapi import asyncapi
from schemas.generate.catalogue import EVENTS
from schemas.generate.json_schema import document
from schemas.turns import TURN_EVENT


def documents() -> dict[str, str]:
    """File name below schemas/generated/ -> content."""
    found: dict[str, Any] = {"asyncapi.json": asyncapi()}
    found[f"{Topics.TURNS}.schema.json"] = document(
        TURN_EVENT,
        f"urn:afterturn:schema:{Topics.TURNS}",
        title="TurnEvent",
        description=f"Any event of {Topics.TURNS}, told apart by `type`.",
    )
    for event in EVENTS:
        name = f"{event.type}.schema.json"
        found[name] = document(TypeAdapter(event.model), f"urn:afterturn:schema:{event.type}:v1")
        found[f"examples/{event.type}.json"] = event.value
    return {name: _text(found[name]) for name in sorted(found)}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"
