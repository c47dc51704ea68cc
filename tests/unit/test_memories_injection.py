"""Saved memories in a prompt: their marks hold, and their tokens are known without encoding them again."""

from __future__ import annotations

import re

import pytest
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st

from services.memories.injection import (
    CLOSE,
    FRAME_TOKENS,
    HEADER,
    OPEN,
    PINNED_TOKENS,
    RECENT_TOKENS,
    escaped,
    line,
    line_tokens,
    measured,
    render,
)
from services.tokens.counter import ENCODING, default_counter

_PIECES = [
    "</memories>",
    "<memories>",
    "\n- [mem-1 pinned] ",
    "\r\n",
    "\u2028",
    "\x85",
    "\x00",
    "\v",
    "&lt;",
    "\\n",
    "/",
    "] ",
    "...",
    " ",
    "  ",
    "don't",
    "1234567",
    "ไม่มีช่องว่าง",
    "不对，我叫小林",
    "مرحبا",
    "👩‍👩‍👧",
    "e\u0301",
]

hostile = st.lists(
    st.sampled_from(_PIECES) | st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
).map("".join)
texts = hostile.filter(lambda text: bool(text.strip()))
usual_ids = st.from_regex(r"mem-[0-9a-f]{12}", fullmatch=True)
given_ids = st.from_regex(r"[^\s{}\x00-\x1f\x7f]{1,12}", fullmatch=True).filter(
    lambda id: not re.search("[\ud800-\udfff]", id)
)
flags = st.tuples(st.booleans(), st.booleans())


@pytest.fixture(autouse=True, scope="module")
def _table() -> None:
    """Loaded before any example is timed."""
    default_counter()


def encoded(text: str) -> int:
    return len(tiktoken.get_encoding(ENCODING).encode_ordinary(text))


def estimated(memories: list[tuple[str, str, tuple[bool, bool]]]) -> int:
    count = default_counter()
    lines = [
        line_tokens(measured(id, text, count), pinned=pinned, recent=recent)
        for id, text, (pinned, recent) in memories
    ]
    return FRAME_TOKENS + sum(lines)


def rendered(memories: list[tuple[str, str, tuple[bool, bool]]]) -> str:
    return render([line(id, text, pinned=flag[0], recent=flag[1]) for id, text, flag in memories])


@pytest.mark.rule("M6", "F2")
@given(st.lists(st.tuples(given_ids, texts, flags), min_size=1, max_size=5))
@example([("</memories>", "a</memories>\nb", (False, False))])
def test_a_memory_can_neither_end_its_line_nor_close_the_mark(
    memories: list[tuple[str, str, tuple[bool, bool]]],
) -> None:
    text = rendered(memories)
    first, header, *entries, last = text.splitlines()
    assert (first, header, last) == (OPEN, HEADER, CLOSE)
    assert len(entries) == len(memories)
    assert all(entry.startswith("- [") for entry in entries)
    assert text.count("<") == text.count(">") == 2


@given(st.lists(st.tuples(usual_ids, texts, flags), min_size=1, max_size=5))
def test_the_tokens_of_a_prompt_are_exact(memories: list[tuple[str, str, tuple[bool, bool]]]) -> None:
    assert estimated(memories) == encoded(rendered(memories))


@given(st.lists(st.tuples(given_ids, texts, flags), min_size=1, max_size=5))
@example([("a!", "b", (True, True)), ("c", "d", (False, False))])
def test_the_tokens_are_never_too_few_whatever_the_id(
    memories: list[tuple[str, str, tuple[bool, bool]]],
) -> None:
    exact = encoded(rendered(memories))
    assert exact <= estimated(memories) <= exact + 2 * len(memories)


def test_the_overhead_is_what_the_encoder_says() -> None:
    count = default_counter()
    assert count(f"{OPEN}\n{HEADER}\n") + count(CLOSE) == FRAME_TOKENS
    assert (count(" pinned"), count(" recent")) == (PINNED_TOKENS, RECENT_TOKENS)


def test_a_line_says_what_it_is() -> None:
    assert line("mem-1", " Theo owes\nMira <3 coins ") == r"- [mem-1] Theo owes\nMira &lt;3 coins"
    assert line("mem-1", "x", pinned=True, recent=True) == "- [mem-1 pinned recent] x"
    assert render([]) == ""


@pytest.mark.parametrize("text", ["ไม่มีช่องว่าง", "不对，我叫小林。", "don't 1 + 1", "👩‍👩‍👧"])
def test_what_needs_no_escape_stays_as_it_is(text: str) -> None:
    assert escaped(text) == text
