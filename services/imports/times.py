"""Times as the various programs write them. A time without an offset is taken for UTC."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST = datetime(2200, 1, 1, tzinfo=UTC)
_MILLISECONDS_FROM = 100_000_000_000
"""A larger number counts milliseconds: as seconds it would be after the year 5138."""

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# June 19, 2024 2:20pm
_NAMED = re.compile(
    r"([A-Za-z]{3})[a-z]*\.? (\d{1,2}), (\d{4}),? (\d{1,2}):(\d\d)(?::(\d\d))? ?([ap]m)?", re.I
)
# 2024-06-19 @14h 20m 31s 123ms
_LETTERED = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2}) ?@ ?(\d{1,2})h ?(\d{1,2})m ?(\d{1,2})s(?: ?(\d{1,3})ms)?"
)


def parse(value: Any) -> datetime | None:
    """The time in UTC; None where it is not understood or not between 1970 and 2200."""
    if isinstance(value, bool):
        return None
    try:
        if isinstance(value, int | float):
            found = _number(value)
        elif isinstance(value, str):
            found = _text(value.strip())
        else:
            return None
        found = found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return found if _EPOCH <= found < _LAST else None


def _number(value: float) -> datetime:
    return _EPOCH + timedelta(seconds=value / 1000 if value >= _MILLISECONDS_FROM else value)


def _text(text: str) -> datetime:
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return _number(float(text))
    if match := _NAMED.fullmatch(text):
        month, day, year, hour, minute, second, half = match.groups()
        hours = int(hour)
        if half:
            if not 1 <= hours <= 12:
                raise ValueError("no hour of twelve")
            hours = hours % 12 + (12 if half.lower() == "pm" else 0)
        number = _MONTHS.index(month.lower()) + 1
        return datetime(int(year), number, int(day), hours, int(minute), int(second or 0))
    if match := _LETTERED.fullmatch(text):
        *whole, milliseconds = match.groups()
        year, month, day, hour, minute, second = map(int, whole)
        return datetime(year, month, day, hour, minute, second, int(milliseconds or 0) * 1000)
    return datetime.fromisoformat(text)
