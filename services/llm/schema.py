"""The JSON schema of an answer, in the form that structured output asks for."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def strict_schema(answer: type[BaseModel]) -> dict[str, Any]:
    """The model's schema with every property required and none beside them; bounds stay with pydantic, since
    endpoints differ in the keywords that they accept."""
    schema: dict[str, Any] = _strict(answer.model_json_schema())
    return schema


_DROPPED = frozenset(
    {"title", "default", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
)


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    # a property may have the name of a keyword; its value is then a schema
    kept = {
        key: _strict(value) for key, value in node.items() if key not in _DROPPED or isinstance(value, dict)
    }
    if kept.get("type") == "object":
        kept["required"] = list(kept.get("properties", {}))
        kept["additionalProperties"] = False
    return kept
