"""The money: what was used, priced here by hand, against what ClickHouse says."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import chdb

from tests.faults.load import DEFAULT_PRICE, PRICE, Load


class Booked(NamedTuple):
    """Sums of ClickHouse: uses as readers see them, rows as inserted, credits of all and of the replies."""

    uses: int
    ids: int
    rows: int
    credits: Decimal
    replies: int
    reply_credits: Decimal
    tokens_in: int
    tokens_out: int


def read(folder: Path) -> Booked:
    """From the engine's folder, which no other process has open any more."""
    connection = chdb.connect(str(folder))
    try:
        answer = connection.query(
            "SELECT count(), uniqExact(id), (SELECT count() FROM afterturn.credits), sum(credits),"
            " countIf(stage = 'reply'), sumIf(credits, stage = 'reply'), sum(tokens_in), sum(tokens_out)"
            " FROM afterturn.usage",
            "TabSeparated",
        )
        cells = str(answer.bytes().decode()).strip().split("\t")
    finally:
        connection.close()
    return Booked(
        *map(int, cells[:3]),
        Decimal(cells[3]),
        int(cells[4]),
        Decimal(cells[5]),
        *map(int, cells[6:]),
    )


def price(model: str, tokens_in: int, tokens_out: int) -> Decimal:
    """Credits of one use."""
    per_in, per_out = PRICE.get(model, DEFAULT_PRICE)
    return tokens_in * per_in + tokens_out * per_out


def check(booked: Booked, sent: Iterable[dict[str, Any]], load: Load) -> Iterator[str]:
    """`sent` are the usage events of the topic, repeats included: each id is booked once, to the last decimal place."""
    uses = {event["id"]: event for event in sent}
    replies = [event for event in uses.values() if event["stage"] == "reply"]
    if booked.uses != booked.ids or booked.uses != len(uses):
        yield f"ClickHouse has {booked.uses} uses with {booked.ids} ids, {len(uses)} were sent"
    credits = sum((price(u["model"], u["tokens_in"], u["tokens_out"]) for u in uses.values()), Decimal(0))
    if booked.credits != credits:
        yield f"ClickHouse has {booked.credits} credits, {credits} were used"
    tokens = sum(u["tokens_in"] for u in uses.values()), sum(u["tokens_out"] for u in uses.values())
    if (booked.tokens_in, booked.tokens_out) != tokens:
        yield f"ClickHouse has {(booked.tokens_in, booked.tokens_out)} tokens, {tokens} were used"
    paid = sorted((event["chat_id"], event["tokens_in"], event["tokens_out"]) for event in replies)
    if paid != sorted(load.replies):
        yield f"{len(paid)} replies were sent to be booked, the load has {len(load.replies)}, or their tokens differ"
    worth = sum((price("reply-model", *tokens) for _, *tokens in load.replies), Decimal(0))
    if (booked.replies, booked.reply_credits) != (len(load.replies), worth):
        yield f"ClickHouse has {booked.replies} replies for {booked.reply_credits}, the load {len(load.replies)} for {worth}"
