"""Rules and corrections found without a model."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.turns import Role
from services.summaries.port import SourceMessage
from services.summaries.rules import (
    QUOTE_CHARACTERS,
    QUOTES_PER_MESSAGE,
    find_rules,
    is_quote_of,
    literal_quote,
    quotes,
)
from tests.bench.rules import held_out, load, score


def message(text: str, role: Role = Role.user, seq: int = 0) -> SourceMessage:
    return SourceMessage(seq, f"m{seq}", role, "u1", text, len(text), datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.rule("S5")
def test_quality_on_labelled_messages_does_not_fall():
    rows = load()
    assert len(rows) >= 200
    assert len({row.lang for row in rows}) >= 12
    all_of = score(held_out(rows))["all"]
    assert all_of.precision >= 0.9
    assert all_of.recall >= 0.85


@pytest.mark.rule("S5")
@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("We reach the inn. ((No time skips, please.)) I knock.", "((No time skips, please.))"),
        ("[OOC: keep it short please]\nI knock.", "[OOC: keep it short please]"),
        ("Guten Abend! Nein, ich heiße Jana. Und du?", "Nein, ich heiße Jana."),
        ("That's wrong. I was born in Bergen. Tea?", "That's wrong. I was born in Bergen."),
        ("你好。不对，我叫小林。你呢？", "不对，我叫小林。"),
        ("สวัสดี\nต่อไปนี้ให้เรียกฉันว่าพี่นก", "ต่อไปนี้ให้เรียกฉันว่าพี่นก"),
    ],
)
def test_a_quote_is_a_whole_sentence_or_marked_passage(text: str, quote: str):
    assert quotes(text) == [quote]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "😀😀",
        "((brb))",
        "OOC: are you there?",
        "That's wrong.",
        '"Never call me Tom!" he said.',
        "No, thanks.",
    ],
)
def test_what_states_no_rule(text: str):
    assert quotes(text) == []


@pytest.mark.rule("S5")
def test_only_the_user_states_rules():
    text = "From now on, call me Captain."
    roles = [Role.assistant, Role.system, Role.tool, Role.user]
    found = find_rules([message(text, role, seq) for seq, role in enumerate(roles)])
    assert [(rule.quote, rule.message_id, rule.author) for rule in found] == [(text, "m3", "u1")]


def test_the_same_rule_twice_is_kept_once():
    found = find_rules([message("Remember: no magic.", seq=1), message("Remember:  no magic.", seq=2)])
    assert [rule.message_id for rule in found] == ["m1"]


@given(
    st.text(max_size=200),
    st.sampled_from(["OOC: ", "((", "Remember: ", "no, my name is ", "记住：", "ООС: "]),
    st.text(max_size=200),
)
def test_every_quote_is_literally_in_the_message(before: str, cue: str, after: str):
    text = f"{before}{cue}{after})) {cue}{before}"
    found = quotes(text)
    assert all(quote in text and quote.strip() for quote in found)
    assert found == quotes(text)


def test_quotes_of_one_message_are_bounded():
    found = quotes("\n".join(f"Remember: rule number {n} holds." for n in range(QUOTES_PER_MESSAGE * 2)))
    assert len(found) == QUOTES_PER_MESSAGE
    assert quotes("Remember: " + "word " * QUOTE_CHARACTERS) == []


def test_a_quote_may_differ_in_white_space_only():
    text = "Please,\n never call\tme  sir."
    assert is_quote_of("never call me sir.", text)
    assert literal_quote("never call me sir.", text) == "never call\tme  sir."
    assert not is_quote_of("never call me Sir.", text)
    assert not is_quote_of("  ", text)
