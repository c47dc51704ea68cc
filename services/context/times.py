"""Times as they stand in an answer: hundreds of them in a context."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1)


@lru_cache(maxsize=16_384)
def time_text(milliseconds: int) -> str:
    """As RFC 3339 writes it and pydantic does."""
    minutes, rest = divmod(milliseconds, 60_000)
    seconds, fraction = divmod(rest, 1_000)
    return (
        f"{_minute(minutes)}:{seconds:02d}.{fraction:03d}000Z"
        if fraction
        else f"{_minute(minutes)}:{seconds:02d}Z"
    )


@lru_cache(maxsize=16_384)
def time_json(milliseconds: bytes) -> bytes:
    """The same, from digits and as a JSON string."""
    return b'"%b"' % time_text(int(milliseconds)).encode()


@lru_cache(maxsize=1_024)
def _minute(minutes: int) -> str:
    return (_EPOCH + timedelta(minutes=minutes)).isoformat(timespec="minutes")
