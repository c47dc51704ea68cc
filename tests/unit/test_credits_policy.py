"""Prices and what a use costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import limits
from schemas.usage import UsageBooked
from services.credits import prices
from services.credits.policy import (
    PLACES,
    PriceError,
    PriceTable,
    Unbookable,
    charge,
    parse,
)

AT = datetime(2026, 11, 30, 10, tzinfo=UTC)
FLAT = [{"input": "1", "output": "2"}]


def use(**changes: Any) -> UsageBooked:
    values = {
        "id": "e1",
        "at": AT,
        "chat_id": "c1",
        "model": "m",
        "stage": "reply",
        "tokens_in": 10,
        "tokens_out": 5,
        **changes,
    }
    return UsageBooked(**values)


multipliers = st.integers(0, 999_999_999_999).map(lambda millionths: Decimal(millionths).scaleb(-PLACES))


@pytest.mark.rule("C1")
@given(multipliers, multipliers, st.integers(0, limits.USED_TOKENS), st.integers(0, limits.USED_TOKENS))
def test_credits_are_tokens_times_multipliers_exactly(
    price_in: Decimal, price_out: Decimal, tokens_in: int, tokens_out: int
) -> None:
    table = parse({"default": [{"input": str(price_in), "output": str(price_out)}]})
    credits = table.credits("any", AT, tokens_in, tokens_out)
    assert Fraction(credits) == tokens_in * Fraction(price_in) + tokens_out * Fraction(price_out)
    assert credits.as_tuple().exponent == -PLACES


@pytest.mark.rule("C1")
def test_input_and_output_have_multipliers_of_their_own() -> None:
    table = parse({"default": FLAT, "models": {"m": [{"input": "0.5", "output": "0"}]}})
    assert table.credits("m", AT, 3, 1000) == Decimal("1.500000")
    assert table.credits("unlisted", AT, 3, 1000) == Decimal(2003)


@pytest.mark.rule("C1")
def test_the_entry_in_force_at_the_time_of_the_event_counts() -> None:
    table = parse(
        {
            "default": FLAT,
            "models": {
                "m": [
                    {"effective": "2026-12-01T00:00:00+02:00", "input": "7", "output": "0"},
                    {"effective": "2026-11-01", "input": "5", "output": "0"},
                ]
            },
        }
    )
    change = datetime(2026, 11, 30, 22, tzinfo=UTC)
    tick = timedelta(microseconds=1)
    assert table.price("m", change).input == 7
    assert table.price("m", change - tick).input == 5
    assert table.price("m", datetime(2026, 11, 1, tzinfo=UTC)).input == 5
    # before its first entry a model costs the default
    assert table.price("m", datetime(2026, 11, 1, tzinfo=UTC) - tick).input == 1


@given(st.lists(st.integers(0, 400), unique=True, max_size=8), st.integers(-5, 405))
def test_the_price_is_that_of_the_newest_entry_not_after_the_event(days: list[int], day: int) -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    entries: list[dict[str, Any]] = [
        {"effective": (start + timedelta(days=number)).isoformat(), "input": str(number), "output": "0"}
        for number in days
    ]
    table = parse({"default": [*entries, {"input": "999", "output": "0"}]})
    expected = max((number for number in days if number <= day), default=999)
    assert table.price("any", start + timedelta(days=day)).input == expected


@pytest.mark.rule("C1")
def test_extractive_costs_nothing() -> None:
    assert parse({"default": FLAT}).credits("extractive", AT, 10_000, 10_000) == 0


@pytest.mark.parametrize(
    ("table", "named"),
    [
        ({}, r"default: Field required"),
        ({"default": []}, r"default: .*at least 1"),
        ({"default": FLAT, "modles": {}}, r"modles: Extra inputs"),
        ({"default": [{"input": "1"}]}, r"default\[0\]\.output: Field required"),
        ({"default": FLAT, "models": {"m": [{**FLAT[0], "cached": "1"}]}}, r"models\.m\[0\]\.cached: Extra"),
        (
            {"default": FLAT, "models": {"m": [{"input": "-1", "output": "1"}]}},
            r"models\.m\[0\]\.input: .*greater",
        ),
        (
            {"default": FLAT, "models": {"m": [{"input": "1", "output": "0.0000001"}]}},
            r"models\.m\[0\]\.output: .*6 decimal",
        ),
        ({"default": FLAT, "models": {"m": [{"input": "NaN", "output": "1"}]}}, r"models\.m\[0\]\.input"),
        ({"default": FLAT, "models": {"m": [{"input": 0.1, "output": "1"}]}}, r"m\[0\]\.input: .*as text"),
        ({"default": FLAT, "models": {"m": [{"input": "one", "output": "1"}]}}, r"m\[0\]\.input: .*decimal"),
        (
            {"default": FLAT, "models": {"m": [{**FLAT[0], "effective": "2026-13-01"}]}},
            r"m\[0\]\.effective: .*month",
        ),
        (
            {"default": FLAT, "models": {"m": [{**FLAT[0], "effective": "2026-12-01T00:00:00"}]}},
            r"m\[0\]\.effective: .*timezone",
        ),
        ({"default": FLAT, "models": {"m": FLAT * 2}}, r"models\.m: .*same effective date \(the beginning\)"),
        ({"default": FLAT, "models": {"extractive": FLAT}}, r"models: .*extractive .*costs nothing"),
        ({"default": [{**FLAT[0], "effective": "2026-01-01"}]}, r"default: .*without an effective date"),
        (["default"], r"is not a mapping"),
    ],
)
def test_a_wrong_table_names_model_and_field(table: Any, named: str) -> None:
    with pytest.raises(PriceError, match=named):
        parse(table)


def test_a_use_that_no_row_can_hold_is_refused() -> None:
    dear = parse({"default": [{"input": "10000", "output": "0"}]})
    with pytest.raises(Unbookable, match=r"^tokens: cost 1000000000000"):
        charge(dear, use(tokens_in=limits.USED_TOKENS))


@pytest.mark.rule("C1")
@pytest.mark.parametrize("year", [limits.FIRST_YEAR, limits.LAST_YEAR])
def test_every_use_that_may_be_published_can_be_booked(year: int) -> None:
    usage = use(tokens_in=limits.USED_TOKENS, tokens_out=limits.USED_TOKENS, at=AT.replace(year=year))
    assert charge(parse({"default": FLAT}), usage) == 3 * limits.USED_TOKENS


def test_the_table_that_ships_is_sound() -> None:
    table = prices.load(None)
    assert isinstance(table, PriceTable)
    assert table.models


def test_numbers_of_a_file_never_become_binary_fractions(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    file.write_text(
        "default:\n- input: 0.1\n  output: '0.2'\nmodels:\n  m:\n  - {effective: 2026-12-01, input: 0.3, output: 1}\n"
    )
    table = prices.load(file)
    assert table.default[0].input == Decimal("0.1")
    assert table.models["m"][0].effective == datetime(2026, 12, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"default: [", "not valid YAML"),
        (b"default: []\ndefault: []", "'default' is there twice"),
        (b"models: {m: [{input: 1, output: 1}], m: []}", "'m' is there twice"),
        (b"\xff\xfe\xfa", "not valid YAML"),
        (b"", "is not a mapping"),
        (b"default: !!python/object/apply:os.system [true]", "default"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, content: bytes, named: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_bytes(content)
    with pytest.raises(PriceError, match=named) as raised:
        prices.load(file)
    assert str(raised.value).startswith(str(file))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PriceError, match=r"absent\.yaml: No such file"):
        prices.load(tmp_path / "absent.yaml")
