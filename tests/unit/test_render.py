"""The text of a body, and the way back from an edited text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.chunks import Span
from schemas.summaries import Body, Rule, TimelineLine
from services.summaries.render import FACTS, PROMISES, RULES, STATE, parse, render

SPAN = Span(first_seq=10, last_seq=19, first_message="m10", last_message="m19", messages=10)
BODY = Body(
    timeline=(
        TimelineLine(text="Mira: The ferry leaves at 9:40.", first_seq=10, last_seq=11),
        TimelineLine(text="Tom: I sold the boat", first_seq=12, last_seq=15),
    ),
    promises=("Tom: I'll bring the map",),
    facts=("Bergen", "9:40"),
    state=("Mira waits at the pier.",),
    rules=(Rule(quote="Never call me sir.", message_id="m12", author="Tom"),),
)

_TEXT = st.text(min_size=1, max_size=40).filter(lambda text: bool(text.strip()))
_TEXTS = st.lists(_TEXT | st.sampled_from([PROMISES, FACTS, STATE, RULES, "\\", 'x: "y"']), max_size=4).map(
    tuple
)
_BODIES = st.builds(
    Body,
    timeline=st.lists(
        st.builds(TimelineLine, text=_TEXT, first_seq=st.integers(0, 9), last_seq=st.integers(10, 19)),
        max_size=4,
    ).map(tuple),
    promises=_TEXTS,
    facts=_TEXTS,
    state=_TEXTS,
    rules=st.lists(
        st.builds(Rule, quote=_TEXT, message_id=st.none() | st.just("m1"), author=st.just("") | _TEXT),
        max_size=3,
    ).map(tuple),
)


def test_sections_have_short_headings_and_the_timeline_none():
    assert render(BODY) == (
        "Mira: The ferry leaves at 9:40.\n"
        "Tom: I sold the boat\n"
        "Promises:\nTom: I'll bring the map\n"
        "Facts:\nBergen\n9:40\n"
        "Now:\nMira waits at the pier.\n"
        'Rules:\nTom: "Never call me sir."'
    )


def test_an_empty_body_is_an_empty_text():
    assert render(Body()) == ""
    assert parse("", BODY, SPAN) == Body()


@given(_BODIES)
def test_a_text_that_nobody_changed_is_the_same_body(body: Body):
    assert parse(render(body), body, SPAN) == body


@pytest.mark.rule("S6")
def test_an_edited_line_covers_the_whole_span_and_the_others_keep_theirs():
    edited = parse(render(BODY).replace("9:40.", "10:15."), BODY, SPAN)
    assert edited.timeline[0] == TimelineLine(
        text="Mira: The ferry leaves at 10:15.", first_seq=10, last_seq=19
    )
    assert edited.timeline[1:] == BODY.timeline[1:]
    assert edited.rules == BODY.rules


@pytest.mark.rule("S6")
def test_lines_can_be_added_moved_and_removed():
    text = 'Mira: The ferry leaves at 9:40.\nTom has a sister\nFacts:\n9:40\nOslo\nRules:\n"Always rhyme."'
    edited = parse(text, BODY, SPAN)
    assert [line.text for line in edited.timeline] == ["Mira: The ferry leaves at 9:40.", "Tom has a sister"]
    assert edited.facts == ("9:40", "Oslo")
    assert edited.rules == (Rule(quote="Always rhyme."),)
    assert edited.promises == edited.state == ()


@pytest.mark.rule("S5")
def test_a_rule_that_was_moved_is_still_the_rule_of_its_message():
    text = 'Tom: "Never call me sir."\nMira: The ferry leaves at 9:40.'
    edited = parse(text, BODY, SPAN)
    assert edited.rules == BODY.rules
    assert edited.timeline == BODY.timeline[:1]


@pytest.mark.rule("S6")
def test_free_text_without_any_heading_is_a_timeline():
    edited = parse("They met in Bergen.\n\n  They argued.  ", BODY, SPAN)
    assert [(line.text, line.first_seq, line.last_seq) for line in edited.timeline] == [
        ("They met in Bergen.", 10, 19),
        ("They argued.", 10, 19),
    ]
