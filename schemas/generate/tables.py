"""The table of a turn's fields for docs/events.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from pydantic import TypeAdapter

from schemas.generate.json_schema import MODE, Generator
from schemas.turns import TurnRecorded

BEGIN = "<!-- fields: written by `make schemas` -->"
END = "<!-- end of fields -->"


class Row(NamedTuple):
    """One field by its path; `default` is None where the field is required."""

    path: str
    type: str
    default: str | None
    meaning: str


def rows() -> Iterator[Row]:
    """The fields of `turn.recorded`, those of parts below their part."""
    schema = TypeAdapter(TurnRecorded).json_schema(mode=MODE, schema_generator=Generator)
    yield from _object(schema, schema["$defs"], "")


def table() -> str:
    """The rows as Markdown."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for row in rows():
        default = "required" if row.default is None else f"`{row.default}`"
        lines.append(f"| `{row.path}` | {row.type} | {default} | {row.meaning} |")
    return "\n".join(lines)


def inserted(document: str) -> str:
    """`document` with the table between its marks. Raises ValueError where a mark is missing."""
    before, _, rest = document.partition(BEGIN)
    _, mark, after = rest.partition(END)
    if not mark:
        raise ValueError(f"{BEGIN} or {END} is missing")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def _object(schema: dict[str, Any], defs: dict[str, Any], prefix: str) -> Iterator[Row]:
    required = set(schema.get("required", ()))
    for name, field in schema["properties"].items():
        optional, inner = _inner(field, defs)
        many = inner.get("type") == "array"
        _, element = _inner(inner["items"], defs) if many else (False, inner)
        path = f"{prefix}{name}"
        default = None if name in required else json.dumps(field.get("default"))
        parts = element.get("properties")
        if parts and default is not None and default != "null":
            default = "{}"
        meaning = field.get("description") or inner.get("description", "")
        if "const" in inner:
            meaning = "Which event it is."
        yield Row(path, _type(inner, element, optional=optional), default, meaning)
        if parts:
            yield from _object(element, defs, f"{path}[]." if many else f"{path}.")


def _inner(field: dict[str, Any], defs: dict[str, Any]) -> tuple[bool, dict[str, Any]]:
    """(may be null, the schema behind references and unions with null)."""
    choices = field.get("anyOf", [field])
    kept = [choice for choice in choices if choice.get("type") != "null"]
    (only,) = kept
    if "$ref" in only:
        only = defs[only["$ref"].rsplit("/", 1)[1]]
    return len(kept) < len(choices), only


def _type(schema: dict[str, Any], element: dict[str, Any], *, optional: bool) -> str:
    if schema is not element:
        text = f"list of {_plain(element)}{_bounds(schema, 'minItems', 'maxItems', ' elements')}"
    else:
        text = _plain(element)
    return f"{text}, or null" if optional else text


def _plain(schema: dict[str, Any]) -> str:
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return " / ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("format") == "date-time":
        return "RFC 3339 time with an offset"
    kind = str(schema["type"])
    if kind == "string":
        return ("id" if "pattern" in schema else "string") + _bounds(
            schema, "minLength", "maxLength", " characters"
        )
    if kind == "integer":
        low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1)
        return f"integer, {low:,}" + (f" to {schema['maximum']:,}" if "maximum" in schema else " or more")
    return kind


def _bounds(schema: dict[str, Any], low: str, high: str, unit: str) -> str:
    if high not in schema:
        return ""
    return f", {schema.get(low, 0)} to {schema[high]:,}{unit}"
