"""The base of every model, and the types that all of them use."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints

from schemas import limits


class Model(BaseModel):
    """Immutable; unknown fields are ignored, so that an older reader accepts a newer writer.

    Lists that others write have `fail_fast`: the first wrong element is named with all that is wrong about it. Naming
    every one of a million takes half a minute and a gigabyte.
    """

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_timedelta="float")


def _utc(value: datetime) -> datetime:
    # asked before as well: the ends of the calendar have no other time zones
    near = limits.FIRST_YEAR - 1 <= value.year <= limits.LAST_YEAR
    if near and (utc := value.astimezone(UTC)).year >= limits.FIRST_YEAR:
        return utc
    raise ValueError(f"lies outside the years {limits.FIRST_YEAR} to {limits.LAST_YEAR}")


ID_PATTERN = r"^[^\s{}\x00-\x1f\x7f\x85]+$"
Id = Annotated[
    str,
    StringConstraints(min_length=1, max_length=limits.ID_CHARACTERS, pattern=ID_PATTERN),
    Field(description="An identifier: no white space, no control characters, no braces."),
]
Timestamp = Annotated[
    AwareDatetime, AfterValidator(_utc), Field(description="RFC 3339 with an offset; kept in UTC.")
]
Count = Annotated[int, Field(ge=0, le=limits.WHOLE_NUMBER)]
Tokens = Annotated[int, Field(ge=0, le=limits.USED_TOKENS)]
"""Of one use of a model."""
