"""From bytes to events: what does not validate is poison, with the field and the limit in the reason, never the text."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from schemas import limits
from schemas.delivery import Record
from schemas.errors import said
from services.failures import Poison

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)

_SHOWN = 5
"""Problems named in one reason."""


def decode(adapter: TypeAdapter[T], record: Record) -> T:
    """The record's event. Raises Poison."""
    value = record.value
    if value is None:
        raise Poison("value: missing")
    if len(value) > limits.EVENT_BYTES:
        raise Poison(f"value: has {len(value)} bytes, the limit is {limits.EVENT_BYTES}")
    try:
        return adapter.validate_json(value)
    except ValidationError as error:
        raise Poison(reason(error)) from None


def tombstone_of(record: Record) -> str | None:
    """The key of a record without a value, which says that what the topic has under it is to go; None for others."""
    if record.value is not None or not record.key:
        return None
    return record.key.decode(errors="replace")


def reason(error: ValidationError) -> str:
    """What is wrong, field by field."""
    problems = error.errors(include_url=False, include_input=False)
    named = [f"{_field(p)}: {said(p)}"[:300] for p in problems[:_SHOWN]]
    if len(problems) > _SHOWN:
        named.append(f"and {len(problems) - _SHOWN} more")
    return "; ".join(named)


def _field(problem: ErrorDetails) -> str:
    path = [str(part) for part in problem["loc"]]
    if path and "." in path[0]:
        # which event of the union it is; no field has a dot in its name
        del path[0]
    return ".".join(path) or "value"


def check_key(record: Record, expected: str, field: str) -> None:
    """The key decides the partition, and with it the order: it has to be what the event says. Raises Poison."""
    if record.key != expected.encode():
        raise Poison(f"key: is not the {field} of the event")
