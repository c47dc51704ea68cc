"""Rows taken apart as bytes are what decoding them would give, whatever the texts look like."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from schemas.chat import Level
from schemas.chunks import Span
from schemas.summaries import Body, Provenance, Rule, Summary, Tier, TimelineLine
from services.context import rows
from services.context.times import time_text
from tests.gateway import NOW

_LIKE_JSON = [
    '"body":{',
    '"rules":[',
    ',"text":"',
    '","tokens":',
    '","',
    '",',
    ',"',
    "\\",
    '"',
    "},",
    "[",
    "\n",
]


def any_text() -> st.SearchStrategy[str]:
    """Texts that look like the JSON around them as often as not."""
    return st.lists(st.sampled_from([*_LIKE_JSON, "1,2", "ü"]) | st.text(max_size=3), max_size=6).map("".join)


def row(seq: int, text: str) -> tuple[Any, ...]:
    return f"m{seq}{text}", "user", text, text, seq, 1_000 * seq + 5, f"t1{text}"


@given(st.lists(any_text(), max_size=5))
def test_messages_are_in_order_whatever_they_say(texts: list[str]) -> None:
    numbered = list(enumerate(texts, 8))
    stored = {str(seq).encode(): to_json(row(seq, text)) for seq, text in reversed(numbered)}
    found = rows.messages(stored)
    assert [message.seq for message in found] == [seq for seq, _ in numbered]
    assert [tuple(message) for message in found] == [(seq, *row(seq, text)) for seq, text in numbered]


@given(st.lists(st.tuples(any_text(), st.sampled_from(["compact", "spaced", "deleted"])), max_size=5))
def test_rows_of_any_kind_are_read_and_deleted_messages_left_out(messages: list[tuple[str, str]]) -> None:
    stored = {}
    for seq, (text, kind) in enumerate(messages):
        data = [*row(seq, text), 1] if kind == "deleted" else row(seq, text)
        stored[str(seq).encode()] = json.dumps(data).encode() if kind == "spaced" else to_json(data)
    kept = [(seq, text) for seq, (text, kind) in enumerate(messages) if kind != "deleted"]
    found = rows.messages(stored)
    assert [(each.seq, each.text) for each in found] == kept


def test_a_damaged_row_is_an_error() -> None:
    with pytest.raises(ValueError, match="cut short"):
        rows.messages({b"1": b'["m1","user"]'})


@given(st.integers(0, 4 * 10**12))
def test_times_are_written_as_pydantic_does(milliseconds: int) -> None:
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    assert time_text(milliseconds) == from_json(to_json(at))


def summary(lines: list[str], quotes: list[str], text: str) -> Summary:
    return Summary(
        id="s1",
        chat_id="c1",
        tier=Tier.recent,
        generation=0,
        span=Span(first_seq=0, last_seq=1, first_message="m0", last_message="m1", messages=2),
        body=Body(
            timeline=tuple(TimelineLine(text=line, first_seq=0, last_seq=1) for line in lines),
            facts=tuple(lines),
            rules=tuple(Rule(quote=quote, author="u1") for quote in quotes),
        ),
        text=text,
        tokens=1,
        provenance=Provenance(model=text, prompt_version="1", level=Level.balanced, chunk_ids=("k1",)),
        created_at=NOW,
    )


@given(st.lists(any_text(), max_size=3), st.lists(any_text(), max_size=3), any_text())
def test_a_summary_without_its_lines_is_the_same_but_for_them(
    lines: list[str], quotes: list[str], text: str
) -> None:
    stored = summary(lines, quotes, text).model_dump_json(exclude_none=True).encode()
    expected = json.loads(stored)
    whole, lean = rows.summary(stored, body=True), rows.summary(stored, body=False)
    assert whole.data == expected
    assert from_json(lean.text) == from_json(whole.text) == expected.pop("text") == text
    expected["body"] = {"rules": expected["body"]["rules"]}
    assert lean.data == expected
    assert whole[:2] + whole[3:5] == lean[:2] + lean[3:5]


def test_a_summary_that_is_written_in_another_way_stays_whole() -> None:
    data = json.loads(summary(["a"], ["b"], 'say "c"').model_dump_json(exclude_none=True))
    for written in (
        json.dumps(data),
        json.dumps(dict(reversed(data.items())), separators=(",", ":")),
        json.dumps(data | {"body": {"timeline": []}}, separators=(",", ":")),
    ):
        found = rows.summary(written.encode(), body=False)
        assert found.data == json.loads(written)
        assert from_json(found.text) == 'say "c"'
