"""JSON Schemas (draft 2020-12) of the events, as a writer has to satisfy them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema
from pydantic_core import CoreSchema

from schemas.base import Model

MODE: JsonSchemaMode = "validation"


class Generator(GenerateJsonSchema):
    """Pydantic's schema with `type` required: without it no event is told from another one.

    Titles that only repeat a field's name are left out.
    """

    def generate(self, schema: CoreSchema, mode: JsonSchemaMode = MODE) -> JsonSchemaValue:
        return _plain(super().generate(schema, mode))

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _plain(schema: JsonSchemaValue) -> JsonSchemaValue:
    for definition in (schema, *schema.get("$defs", {}).values()):
        tag_required(definition)
    return schema


def tag_required(definition: dict[str, Any]) -> None:
    """Make `type` required where the object has a fixed one."""
    tag = definition.get("properties", {}).get("type", {})
    if "const" in tag:
        tag.pop("default", None)
        definition["required"] = sorted({*definition.get("required", ()), "type"})


def document(adapter: TypeAdapter[Any], identifier: str, **about: str) -> JsonSchemaValue:
    """A schema that stands alone, with `$schema` and `$id`; `about` replaces title or description."""
    schema = adapter.json_schema(mode=MODE, schema_generator=Generator)
    head = {"$schema": Generator.schema_dialect, "$id": identifier}
    return {**head, **schema, **about}


def definitions(models: Sequence[type[Model]], template: str) -> dict[str, Any]:
    """Schemas of models and of what they are made of, by name; references follow `template`."""
    _, schema = models_json_schema(
        [(model, MODE) for model in models], ref_template=template, schema_generator=Generator
    )
    found: dict[str, Any] = schema["$defs"]
    for definition in found.values():
        tag_required(definition)
    return dict(sorted(found.items()))
