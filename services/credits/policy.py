"""What a use costs: credits = tokens in x input + tokens out x output, exact to six decimal places (C1)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal, localcontext
from itertools import pairwise
from typing import Annotated

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    field_validator,
)

from schemas import limits
from schemas.base import Timestamp
from schemas.usage import UsageBooked

PLACES = 6
"""Decimal places of credits, as in the column of the ledger."""

CREDITS_LIMIT = Decimal(10) ** 12
"""One use costs less than this: the column is Decimal(18, 6)."""

FREE = "extractive"
"""Asks no model, so it costs nothing; a price for it is refused."""

_UNIT = Decimal(1).scaleb(-PLACES)
_EXACT = Context(prec=60)
_BEGINNING = datetime.min.replace(tzinfo=UTC)


class PriceError(ValueError):
    """The price table is wrong; the message names the model and the field."""


class Unbookable(ValueError):
    """A use that no ledger row can hold; the message names the field and the limit."""


def _plain(value: object) -> object:
    if isinstance(value, float):
        raise ValueError("is a binary fraction; write the number as text")
    return value


def _midnight(value: object) -> object:
    """A date alone means its first moment in UTC."""
    if isinstance(value, str) and len(value) == len("2026-01-31"):
        value = date.fromisoformat(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime.combine(value, time(), UTC)
    return value


Multiplier = Annotated[
    Decimal,
    BeforeValidator(_plain),
    Field(ge=0, lt=1_000_000, decimal_places=PLACES, allow_inf_nan=False, description="Credits per token."),
]


class Price(BaseModel):
    """Multipliers of one model from `effective` on; None means from the beginning."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    effective: Annotated[Timestamp | None, BeforeValidator(_midnight)] = None
    input: Multiplier
    output: Multiplier

    @property
    def since(self) -> AwareDatetime:
        """The moment from which the price holds."""
        return self.effective or _BEGINNING


def _in_order(prices: tuple[Price, ...]) -> tuple[Price, ...]:
    ordered = tuple(sorted(prices, key=lambda price: price.since))
    for earlier, later in pairwise(ordered):
        if earlier.since == later.since:
            moment = earlier.effective.isoformat() if earlier.effective else "the beginning"
            raise ValueError(f"two entries have the same effective date ({moment})")
    return ordered


Prices = Annotated[tuple[Price, ...], Field(min_length=1), AfterValidator(_in_order)]
ModelName = Annotated[str, StringConstraints(min_length=1, max_length=limits.NAME_CHARACTERS)]


class PriceTable(BaseModel):
    """Prices of all models. The default covers every moment, so that every use has a price."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    default: Prices
    models: dict[ModelName, Prices] = Field(default_factory=dict)

    @field_validator("default")
    @classmethod
    def _default(cls, prices: tuple[Price, ...]) -> tuple[Price, ...]:
        if prices[0].effective is not None:
            raise ValueError("needs one entry without an effective date, for events before the first date")
        return prices

    @field_validator("models")
    @classmethod
    def _models(cls, models: dict[str, tuple[Price, ...]]) -> dict[str, tuple[Price, ...]]:
        if FREE in models:
            raise ValueError(f"{FREE} asks no model and costs nothing; remove its price")
        return models

    def price(self, model: str, at: datetime) -> Price:
        """The price of `model` in force at `at`: its own, or the default where it has none yet."""
        for prices in (self.models.get(model, ()), self.default):
            found = bisect_right(prices, at, key=lambda price: price.since)
            if found:
                return prices[found - 1]
        raise AssertionError("unreachable: the default holds from the beginning")

    def credits(self, model: str, at: datetime, tokens_in: int, tokens_out: int) -> Decimal:
        """Credits of one use with exactly six decimal places, never rounded: multipliers have no more."""
        if model == FREE:
            return Decimal(0).quantize(_UNIT)
        price = self.price(model, at)
        with localcontext(_EXACT):
            return (tokens_in * price.input + tokens_out * price.output).quantize(_UNIT)


def parse(content: object) -> PriceTable:
    """Validate a price table that was read from a file. Raises PriceError with the path of every wrong field."""
    if not isinstance(content, Mapping):
        raise PriceError("is not a mapping with `default` and `models`")
    try:
        return PriceTable.model_validate(content)
    except ValidationError as error:
        raise PriceError("; ".join(_describe(item["loc"], item["msg"]) for item in error.errors())) from None


def _describe(loc: tuple[int | str, ...], message: str) -> str:
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")
    return f"{path}: {message}" if path else message


def charge(prices: PriceTable, usage: UsageBooked) -> Decimal:
    """Credits of a use. Raises Unbookable where the ledger has no room for one of its numbers."""
    amount = prices.credits(usage.model, usage.at, usage.tokens_in, usage.tokens_out)
    if amount >= CREDITS_LIMIT:
        raise Unbookable(f"tokens: cost {amount} credits, the limit for one use is {CREDITS_LIMIT}")
    return amount
