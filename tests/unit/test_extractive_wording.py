"""How a summary without a model reads: paired marks, whole clauses, one separator, nothing that says nothing alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from schemas.chat import Level
from schemas.chunks import Span
from schemas.summaries import Body, Provenance, Summary, Tier
from schemas.turns import Role
from services.summaries import text as texts
from services.summaries.extractive import Extractive
from services.summaries.extractive.facts import names_and_numbers
from services.summaries.extractive.terms import tokens
from services.summaries.extractive.units import Unit, from_messages
from services.summaries.extractive.wording import cleaned
from services.summaries.port import SourceMessage
from services.summaries.render import render
from services.tokens.counter import default_counter

COUNT = default_counter()
SUMMARISER = Extractive(COUNT)
AT = datetime(2026, 1, 1, tzinfo=UTC)

QUOTES = '"“”„‟«»‹›「」『』《》〈〉〝〞〟'


def messages(said: Sequence[str]) -> list[SourceMessage]:
    return [
        SourceMessage(at, f"m{at}", Role.user, "Mira" if at % 2 else "Tom", text, COUNT(text), AT)
        for at, text in enumerate(said)
    ]


def units(text: str) -> list[Unit]:
    return from_messages(messages([text]), {})


async def lines(said: Sequence[str], budget: int) -> list[str]:
    draft = await SUMMARISER.chunk(messages(said), level=Level.balanced, budget=budget)
    return [line.text for line in draft.body.timeline]


@pytest.mark.parametrize(
    ("clause", "shown"),
    [
        ('"A bent linkage I can do on a Tuesday.', "A bent linkage I can do on a Tuesday."),
        (
            'had taste." She turns it over. "Serial number 20914.',
            "had taste. She turns it over. Serial number 20914.",
        ),
        ('always "gleiche Stelle", same place,', 'always "gleiche Stelle", same place'),
        ("„Ja. Sie hat sie bei mir liegen lassen.", "Ja. Sie hat sie bei mir liegen lassen."),
        ('„Aal-Niveau"! du hast geschwindelt', '„Aal-Niveau"! du hast geschwindelt'),
        ("„Das ist gut“, sagt er", "„Das ist gut“, sagt er"),
        ("»Nein«, sagte sie und ging —", "»Nein«, sagte sie und ging"),
        ("“It’s Ilse’s boat,", "It’s Ilse’s boat"),
        ('แต่ต้องจ่ายเงินด้วย" มิราตอบ "บอกพลอย', "แต่ต้องจ่ายเงินด้วย มิราตอบ บอกพลอย"),
        ("「明日行きます。", "明日行きます。"),
        ("他说：“你好”，", "他说：“你好”"),
        ("« Oui », dit-elle :", "« Oui », dit-elle"),
        ("*I lift the chart off its hook,", "I lift the chart off its hook"),
        ("a row of tins (", "a row of tins"),
        ("a) the tin", "a) the tin"),
        ('"All of it in marks."', "All of it in marks."),
        ('" — "', ""),
    ],
)
def test_marks_without_a_partner_and_what_led_on_go(clause: str, shown: str):
    assert cleaned(clause) == shown
    assert cleaned(shown) == shown


@given(st.text(alphabet=st.sampled_from([*QUOTES, *"()[]*,:; aB1—-.’‘'\n"]), max_size=60))
def test_cleaning_is_final_and_leaves_words_alone(text: str):
    shown = cleaned(text)
    assert cleaned(shown) == shown
    assert shown == "" or [*filter(str.isalnum, shown)] == [*filter(str.isalnum, text)]
    assert not shown.endswith((",", ":", ";", "—", "(", "[", "„", "「"))


@pytest.mark.parametrize(
    "text",
    [
        "A. hat die Uhr repariert.",
        "K. hat heute Geburtstag.",
        "Mr. Oliveira sells tickets in Rua das Flores.",
        "Das gilt z.B. für die Pumpe im Boot.",
        "„12. September 1981 war ein Samstag.“",
        "It costs 2,318.40 at 9:40 in Bergen.",
        "Der Zug kostet 3,50 Euro.",
    ],
)
def test_initials_abbreviations_and_numbers_end_no_sentence(text: str):
    assert [text[start:end] for start, end in texts.sentences(text)] == [text]
    assert [unit.raw for unit in units(text)] == [text]


@pytest.mark.parametrize(
    "text",
    [
        "988! is that the bottom?",
        "Ilse Brandt. she died in February",
        "The rule stands on the wall: 5 OR 0.",
        "Quarrel with the keeper, 979.",
        "Er liegt, wo die Zeit steht.",
        "I trained in Porto, because nobody asked me to stay.",
    ],
)
def test_what_says_little_alone_stays_with_its_neighbour(text: str):
    assert [unit.text for unit in units(text)] == [text]


@pytest.mark.parametrize("text", ["988!", "5 OR 0", "Lovely!", "So what?", "好的！", "ค่ะ"])
def test_scraps_are_remarks(text: str):
    assert all(unit.remark for unit in units(text))


@pytest.mark.parametrize(
    "text", ["It weighs 41 kilograms.", "She died in February.", "我住在北京。", "ฉันอยู่เชียงใหม่"]
)
def test_what_can_stand_alone_is_no_remark(text: str):
    assert not any(unit.remark for unit in units(text))


def test_a_long_sentence_is_worth_less_from_its_middle_on():
    first, second = units(
        "The keeper Jonas Brekke retired in March after forty years at the old lighthouse on Utsira, "
        "and nobody in the whole village wanted to take over the light from him."
    )
    assert second.worth < first.worth


def test_shouting_makes_no_names():
    assert not any(token.capital for token in tokens("FOUR FOUR SEVEN ONE"))
    assert not any(token.capital for token in tokens("he WHAT did"))
    assert [token.term for token in tokens("they asked NATO and Ilse") if token.capital] == ["nato", "ilse"]
    assert names_and_numbers("THE KEY IS IN THE CLOCK") == []


@pytest.mark.parametrize(
    ("clause", "facts"),
    [
        ("it was 74 and then 1014", []),
        ("the chart says 19 nautical miles to Orre", ["19 nautical miles", "Orre"]),
        ('he said "Herr Brandt," and left', ["Herr Brandt"]),
        ("we paid 2,318.40 and went", []),
    ],
)
def test_facts_are_names_and_numbers_of_something(clause: str, facts: list[str]):
    assert names_and_numbers(clause) == facts


async def test_clauses_from_different_places_are_sentences_or_have_a_semicolon_between_them():
    said = [
        "the key is number 4471 in Bergen\nwell you know how it is, it goes on and on\n"
        "the lamp oil is at Brekke's store, 40 litres",
    ]
    assert await lines(said, 30) == [
        "Tom: the key is number 4471 in Bergen; the lamp oil is at Brekke's store, 40 litres"
    ]


async def test_facts_that_the_timeline_tells_are_not_told_again():
    said = [
        "Henrik Dahl bought the boat in Bergen for 4,200 crowns.",
        "Lovely, so the debt is gone at last.",
        "The keeper Jonas Brekke retired in March.",
    ]
    draft = await SUMMARISER.chunk(messages(said), level=Level.balanced, budget=150)
    text = " ".join(line.text for line in draft.body.timeline)
    assert "Henrik Dahl" in text
    assert not any(fact in text for fact in draft.body.facts)
    source = Summary(
        id="s",
        chat_id="c",
        tier=Tier.recent,
        generation=0,
        span=Span(first_seq=0, last_seq=2, first_message="m0", last_message="m2", messages=3),
        body=draft.body.model_copy(update={"facts": ("Henrik Dahl", "Marit")}),
        text="",
        tokens=0,
        provenance=Provenance(model="e", prompt_version="p", level=Level.balanced, chunk_ids=("s",)),
        created_at=AT,
    )
    merged = await SUMMARISER.merge([source], tier=Tier.merged, level=Level.balanced, budget=150)
    assert "Marit" in merged.body.facts
    assert "Henrik Dahl" not in merged.body.facts


TOLD = (
    '"Mira Solano." She turns it over. "Serial number 20914, built in Glashütte. Your aunt had taste."',
    'always "gleiche Stelle", same place; every year, on 12 September',
    '„Ja. Sie hat sie bei mir liegen lassen." Mira sieht hinaus. „Ich habe es nicht sehr versucht."',
    '"จริง แต่ต้องจ่ายเงินด้วย" มิราตอบเสียงจริงจัง "บอกพลอยว่าชั่วโมงละยี่สิบสอง"',
    "「明日、三時に会いましょう。」と彼女は言った。「鍵は4471です。」",
    "“我叫小明，住在北京。”他说，“明天三点见！”",
    "« Non », dit-elle : « le phare d'Utsira, 41 marches ; rien d'autre. »",
    "*I lift the chart (the old one, from 1961) and turn it: nothing,",
)

TEXTS = st.lists(
    st.sampled_from(TOLD)
    | st.lists(
        st.sampled_from(
            [*QUOTES, "(", ")", "[", "*", ",", ":", ";", ".", "!", "\n", "—", " ", "Ilse", "went", "to", "41"]
        ),
        max_size=40,
    ).map(" ".join)
    | st.text(max_size=60),
    min_size=1,
    max_size=6,
)


def plain(text: str) -> str:
    """The text without white space and the marks that may go."""
    return re.sub(r"[\s\"“”„‟«»‹›‘’‚「」『』《》〈〉〝〞〟(){}\[\]（）［］【】*]", "", text)


@settings(max_examples=150, deadline=None)
@given(said=TEXTS, budget=st.integers(10, 200))
@example(said=list(TOLD), budget=60)
async def test_every_line_is_made_of_literal_clauses_with_paired_marks(said: list[str], budget: int):
    draft = await SUMMARISER.chunk(messages(said), level=Level.balanced, budget=budget)
    sources = [plain(text) for text in said]
    for line in render(Body(timeline=draft.body.timeline)).split("\n"):
        if not line:
            continue
        _, _, shown = line.removeprefix("\\").partition(": ")
        assert not shown.rstrip("…").endswith((",", ":", ";", "(", "[", "{", "（", "「", "„"))
        assert sum(shown.count(mark) for mark in QUOTES) % 2 == 0
        for opening, closing in ("「」", "『』", "《》", "〈〉"):
            assert shown.count(opening) == shown.count(closing)
        for part in re.split(r"; |；", shown):
            for piece in re.split(r"(?<=[.!?…。！？｡．؟۔।॥։])", part):
                literal = plain(piece).rstrip("…")
                assert any(literal in source for source in sources)
