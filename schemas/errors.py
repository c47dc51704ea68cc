"""What pydantic found wrong, in words for who wrote it; never with the value."""

from __future__ import annotations

from pydantic_core import ErrorDetails

from schemas.base import ID_PATTERN


def said(error: ErrorDetails) -> str:
    """One error's message, without the name of the field."""
    kind, context = error["type"], error.get("ctx", {})
    if kind == "union_tag_invalid":
        # the library's message quotes the value
        return f"{_bare(context['discriminator'])} is none of {context['expected_tags']}"
    if kind == "union_tag_not_found":
        return f"{_bare(context['discriminator'])} is missing"
    if kind == "string_pattern_mismatch" and context["pattern"] == ID_PATTERN:
        return "May not have white space, control characters or braces"
    return error["msg"].removeprefix("Value error, ")


def _bare(discriminator: object) -> str:
    return str(discriminator).strip("'")
