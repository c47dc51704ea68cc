"""What a draft may be, whether it fits, and from which chats anything is drafted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import limits
from schemas.chat import ChatKind, ChatRef
from services.drafts.policy import misfits, refusal, shortened, tidy
from services.drafts.port import Draft

pytestmark = pytest.mark.rule("M7")


@given(st.lists(st.text(max_size=700), max_size=9))
def test_drafts_are_few_short_and_different(texts: list[str]) -> None:
    drafts = tidy(map(Draft, texts))
    found = [draft.text for draft in drafts]
    assert len(found) <= limits.DRAFTS
    assert len({text.casefold() for text in found}) == len(found)
    for text in found:
        assert 0 < len(text) <= limits.MEMORY_CHARACTERS
        assert "\n" not in text


@pytest.mark.parametrize("text", ["🙂" * 501, "word " * 120, "ก็" * 300, "x" * 10_000])
def test_what_is_too_long_is_cut_and_shows_it(text: str) -> None:
    cut = shortened(text)
    assert len(cut) <= limits.MEMORY_CHARACTERS
    assert cut.endswith("…")
    assert text.startswith(cut[:-1])
    assert shortened(text[:500]) == text[:500]


@pytest.mark.rule("M3")
@pytest.mark.parametrize(
    ("texts", "pins", "wrong"),
    [
        (["x" * 500, "🙂" * 500], 0, [[], []]),
        (["x" * 501], 0, [["text"]]),
        ([" "], 0, [["text"]]),
        (["a", "b"], 19, [[], ["pinned"]]),
        (["a"], 20, [["pinned"]]),
        # what does not fit for itself takes no pin from the next one
        (["x" * 501, "b"], 19, [["text"], []]),
    ],
)
def test_misfits_name_field_and_limit(texts: list[str], pins: int, wrong: list[list[str]]) -> None:
    found = misfits(texts, pins)
    assert [[misfit.field for misfit in each] for each in found] == wrong
    for misfit in (misfit for each in found for misfit in each):
        assert misfit.limit == {"pinned": 20, "text": 500}[misfit.field] or misfit.message == "is empty"


@pytest.mark.parametrize(
    ("characters", "kind", "owner", "scope", "off", "why"),
    [
        (("mira",), "normal", "u1", "character:mira", (), None),
        ((), "normal", "u1", "global", ("mira",), None),
        pytest.param(
            ("mira",), "normal", "u1", "global", ("mira",), "learning", marks=pytest.mark.rule("O1")
        ),
        pytest.param(
            ("mira", "tom"), "normal", "u1", "global", ("mira",), None, marks=pytest.mark.rule("O1")
        ),
        pytest.param(
            ("mira", "tom"), "normal", "u1", "character:mira", ("mira",), "mira", marks=pytest.mark.rule("O1")
        ),
        pytest.param(
            ("mira", "tom"),
            "normal",
            "u1",
            "global",
            ("mira", "tom"),
            "learning",
            marks=pytest.mark.rule("O1"),
        ),
        pytest.param(("mira",), "bounty", "u1", "global", (), "bounty", marks=pytest.mark.rule("O3")),
        pytest.param(("mira",), "normal", "", "global", (), "signed out", marks=pytest.mark.rule("O4")),
    ],
)
def test_nothing_is_drafted_where_memory_is_off(
    characters: tuple[str, ...], kind: str, owner: str, scope: str, off: tuple[str, ...], why: str | None
) -> None:
    found = refusal(ChatRef(id="c", kind=ChatKind(kind), characters=characters), owner, scope, off)
    assert (found is None) == (why is None)
    assert why is None or why in (found or "")
