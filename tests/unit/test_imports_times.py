"""Times of the various programs; without an offset they are UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.imports import times

EXPECTED = datetime(2024, 6, 19, 14, 20, 31, tzinfo=UTC)
MINUTE = EXPECTED.replace(second=0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (1718806831, EXPECTED),
        (1718806831.5, EXPECTED + timedelta(milliseconds=500)),
        (1718806831123, EXPECTED + timedelta(milliseconds=123)),
        ("1718806831", EXPECTED),
        ("1718806831123", EXPECTED + timedelta(milliseconds=123)),
        ("2024-06-19T14:20:31Z", EXPECTED),
        ("2024-06-19T14:20:31.000Z", EXPECTED),
        ("2024-06-19T16:20:31+02:00", EXPECTED),
        ("2024-06-19T14:20:31", EXPECTED),
        ("2024-06-19 14:20:31", EXPECTED),
        ("June 19, 2024 2:20pm", MINUTE),
        ("Jun 19, 2024 2:20 PM", MINUTE),
        ("June 19, 2024 14:20", MINUTE),
        ("June 19, 2024 12:05am", datetime(2024, 6, 19, 0, 5, tzinfo=UTC)),
        ("June 19, 2024 12:05pm", datetime(2024, 6, 19, 12, 5, tzinfo=UTC)),
        ("2024-06-19 @14h 20m 31s 123ms", EXPECTED + timedelta(milliseconds=123)),
        ("2024-6-19@14h20m31s", EXPECTED),
        (" 2024-06-19T14:20:31Z ", EXPECTED),
    ],
)
def test_known_ways_to_write_a_time(value: Any, expected: datetime) -> None:
    assert times.parse(value) == expected


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "",
        "some day",
        "June 31, 2024 2:20pm",
        "Mai 19, 2024 2:20pm",
        "June 19, 2024 13:20pm",
        -1,
        float("nan"),
        float("inf"),
        10**30,
        "9" * 400,
        "1969-12-31T23:59:59Z",
        "2300-01-01",
        [],
        {},
    ],
)
def test_what_is_no_time(value: Any) -> None:
    assert times.parse(value) is None


@given(st.one_of(st.text(), st.floats(), st.integers(), st.none(), st.booleans()))
def test_nothing_raises(value: Any) -> None:
    found = times.parse(value)
    assert found is None or found.tzinfo is UTC


@given(st.datetimes(datetime(1970, 1, 2), datetime(2199, 1, 1)))
def test_iso_and_milliseconds_agree(moment: datetime) -> None:
    moment = moment.replace(tzinfo=UTC, microsecond=moment.microsecond // 1000 * 1000)
    assert times.parse(moment.isoformat()) == moment
    milliseconds = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if milliseconds >= 100_000_000_000:
        assert times.parse(milliseconds) == moment
