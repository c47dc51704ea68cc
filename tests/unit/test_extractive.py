"""The summariser without a model: budgets, levels, what is kept, and what a reader sees."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.chat import Level
from schemas.chunks import Span
from schemas.summaries import Body, Provenance, Rule, Summary, Tier, TimelineLine
from schemas.turns import Role
from services.summaries.extractive import Extractive
from services.summaries.port import Draft, SourceMessage
from services.summaries.render import render
from services.tokens.counter import default_counter

AT = datetime(2026, 1, 1, tzinfo=UTC)
COUNT = default_counter()
SUMMARISER = Extractive(COUNT)

STORY = (
    "Morning! I finally sold the old boat to Henrik Dahl for 4,200 crowns, so the harbour debt is gone.",
    "Oh wow, congratulations! That must feel so good. What will you do with the rest of the money?",
    "I'll bring you 300 crowns on Friday, as I said. The rest goes to my sister Ilse in Bergen.",
    "You really do not have to. How is Ilse? Is she still working at the lighthouse on Utsira?",
    "She left Utsira in March, the keeper Jonas Brekke retired and the light runs alone now. "
    "Remember: Ilse must not know about the boat.",
    "I promise I will not say a word to Ilse. By the way, the doctor moved my appointment to 14 May at 9:40.",
    "Then we can go together, I have to be in town on 14 May anyway. Hm, yes, well, you know how it is.",
    "Lovely! We could eat at the Blue Heron afterwards, they have the plum cake that you like so much.",
    "Deal. And we should ask old Marit whether she still rents the red house by the pier.",
    "She told me that the red house costs 900 crowns a month from summer on. It has three rooms and a stove.",
)


def messages(texts: Sequence[str], first: int = 0) -> list[SourceMessage]:
    return [
        SourceMessage(
            seq=first + at,
            id=f"m{first + at}",
            role=Role.assistant if at % 2 else Role.user,
            author="Mira" if at % 2 else "Tom",
            text=text,
            tokens=COUNT(text),
            at=AT,
        )
        for at, text in enumerate(texts)
    ]


def summary(body: Body, first: int, last: int, *, edited: bool = False) -> Summary:
    text = render(body)
    return Summary(
        id=f"s{first}",
        chat_id="c1",
        tier=Tier.recent,
        generation=0,
        span=Span(
            first_seq=first,
            last_seq=last,
            first_message=f"m{first}",
            last_message=f"m{last}",
            messages=last - first + 1,
        ),
        body=body,
        text=text,
        tokens=COUNT(text),
        provenance=Provenance(
            model="extractive", prompt_version="extractive-1", level=Level.balanced, chunk_ids=(f"s{first}",)
        ),
        created_at=AT,
        edited_at=AT if edited else None,
    )


def cost(draft: Draft) -> int:
    """Tokens that the budget is about: all but the rules."""
    return COUNT(render(draft.body.model_copy(update={"rules": ()})))


async def chunk(texts: Sequence[str], budget: int, level: Level = Level.balanced, first: int = 0) -> Draft:
    return await SUMMARISER.chunk(messages(texts, first), level=level, budget=budget)


async def test_a_summary_says_who_said_what_in_order_in_whole_words():
    draft = await chunk(STORY, 110)
    assert 0 < cost(draft) <= 110
    assert draft.tokens_in == sum(COUNT(text) for text in STORY)
    assert draft.tokens_out == COUNT(render(draft.body))
    spans = [(line.first_seq, line.last_seq) for line in draft.body.timeline]
    assert spans == sorted(spans)
    words = set(" ".join(STORY).replace(",", " ").replace(".", " ").split())
    for line in draft.body.timeline:
        author, _, said = line.text.partition(": ")
        assert author in ("Tom", "Mira")
        assert set(said.replace(",", " ").replace(".", " ").replace(";", " ").split()) <= words


@pytest.mark.rule("S1")
async def test_names_numbers_and_promises_are_kept_and_small_talk_is_not():
    text = render((await chunk(STORY, 150)).body)
    kept = [
        word
        for word in ("Henrik Dahl", "4,200", "300 crowns", "14 May", "9:40", "Utsira", "900")
        if word in text
    ]
    assert len(kept) >= 5
    assert "you know how it is" not in text


async def test_promises_and_state_have_sections_where_there_is_room():
    body = (await chunk(STORY, 200)).body
    assert any("300 crowns on Friday" in promise for promise in body.promises)
    assert body.state
    written = render(body)
    for entry in (*body.promises, *body.state):
        assert written.count(entry) == 1


@pytest.mark.rule("S3")
async def test_levels_keep_different_amounts():
    lines = {
        level: (await chunk(STORY, 150, level)).body
        for level in (Level.key_events, Level.balanced, Level.detailed)
    }
    tokens = {level: COUNT(render(body)) for level, body in lines.items()}
    assert tokens[Level.key_events] < 0.75 * tokens[Level.balanced]
    seen = {level: len(body.timeline) for level, body in lines.items()}
    assert seen[Level.key_events] < seen[Level.balanced] <= seen[Level.detailed]


@pytest.mark.rule("S3")
async def test_old_detail_fades_soonest_with_key_events():
    shares = {}
    for level in (Level.key_events, Level.detailed):
        source = summary(long_body(80), 0, 399)
        body = (await SUMMARISER.compress(source, level=level, budget=500)).body
        old = sum(COUNT(line.text) for line in body.timeline if line.last_seq < 200)
        shares[level] = old / max(1, sum(COUNT(line.text) for line in body.timeline))
    assert shares[Level.key_events] < shares[Level.detailed]


def long_body(lines: int) -> Body:
    return Body(
        timeline=tuple(
            TimelineLine(
                text=f"{'Tom' if at % 2 else 'Mira'}: the {at * 7919 % 9973} sheep of Valley{at} crossed the ridge; "
                f"nobody from Village{at} saw where the herd went",
                first_seq=5 * at,
                last_seq=5 * at + 4,
            )
            for at in range(lines)
        ),
        promises=("Tom: I'll bring you 300 crowns on Friday", "Mira: I promise not to tell Ilse"),
        facts=("Henrik Dahl", "4,200 crowns", "14 May", "9:40"),
        state=("Mira: the red house costs 900 crowns a month",),
        rules=(Rule(quote="Remember: Ilse must not know about the boat.", message_id="m4", author="Tom"),),
    )


@pytest.mark.rule("S4")
@pytest.mark.parametrize("level", list(Level))
async def test_compression_keeps_promises_names_numbers_and_state(level: Level):
    source = summary(long_body(60), 0, 299)
    draft = await SUMMARISER.compress(source, level=level, budget=600)
    assert cost(draft) <= 600 < source.tokens
    assert draft.body.promises == source.body.promises
    assert set(source.body.facts) <= set(draft.body.facts)
    assert draft.body.state == source.body.state
    assert draft.body.rules == source.body.rules


@pytest.mark.rule("S4")
async def test_compression_makes_short_lines_per_period_of_the_oldest():
    source = summary(long_body(60), 0, 299)
    timeline = (await SUMMARISER.compress(source, level=Level.balanced, budget=600)).body.timeline
    old = [line for line in timeline if line.last_seq < 150]
    new = [line for line in timeline if line.first_seq >= 150]
    assert old
    assert new
    assert max(line.last_seq - line.first_seq for line in old) > max(
        line.last_seq - line.first_seq for line in new
    )
    assert [line.first_seq for line in timeline] == sorted(line.first_seq for line in timeline)


@pytest.mark.rule("S2")
async def test_a_merge_keeps_order_spans_and_the_last_state():
    sources = []
    for number in range(4):
        draft = await chunk(STORY[number:] + STORY[:number], 200, first=10 * number)
        sources.append(summary(draft.body, 10 * number, 10 * number + 9))
    draft = await SUMMARISER.merge(sources, tier=Tier.merged, level=Level.balanced, budget=300)
    assert 0 < cost(draft) <= 300
    assert draft.tokens_in == sum(source.tokens for source in sources)
    assert draft.body.state == sources[-1].body.state
    firsts = [line.first_seq for line in draft.body.timeline]
    assert firsts == sorted(firsts)
    assert all(0 <= line.first_seq <= line.last_seq <= 39 for line in draft.body.timeline)


@pytest.mark.rule("S6")
async def test_what_a_person_wrote_outlasts_a_merge():
    note = "Tom is really a baker and hides it from everyone in the village"
    bodies = [
        long_body(12),
        Body(timeline=(TimelineLine(text=note, first_seq=60, last_seq=119),)),
        long_body(12),
    ]
    sources = [summary(body, 60 * at, 60 * at + 59, edited=at == 1) for at, body in enumerate(bodies)]
    draft = await SUMMARISER.merge(sources, tier=Tier.merged, level=Level.balanced, budget=200)
    assert note in render(draft.body)


RULES = (
    "No, my name is Tobias.",
    "OOC: bitte keine Zeitsprünge mehr.",
    "ห้ามพูดถึงแม่ของฉันอีก",
    "从现在起请用英文回答我。",
    "С этого момента обращайся ко мне на «вы».",
    "من الآن فصاعدا تحدث معي بالفصحى.",
    "((Réponds plus court, merci.))",
    "これからは敬語を使わないで。",
)


@pytest.mark.rule("S5")
@settings(max_examples=25, deadline=None)
@given(
    stated=st.lists(st.sampled_from(RULES), min_size=4, max_size=4),
    budgets=st.lists(st.integers(0, 120), min_size=4, max_size=4),
    level=st.sampled_from(list(Level)),
)
async def test_rules_survive_every_merge_and_compression_word_for_word(
    stated: list[str], budgets: list[int], level: Level
):
    recent = []
    for at, rule in enumerate(stated):
        draft = await chunk([rule, *STORY[at : at + 3]], budgets[at], level, first=4 * at)
        assert [kept.quote for kept in draft.body.rules if kept.message_id == f"m{4 * at}"] == [rule]
        recent.append(summary(draft.body, 4 * at, 4 * at + 3))
    merged = await SUMMARISER.merge(recent, tier=Tier.merged, level=level, budget=budgets[0])
    twice = await SUMMARISER.merge(
        [summary(merged.body, 0, 15)], tier=Tier.long_term, level=level, budget=budgets[1]
    )
    last = await SUMMARISER.compress(summary(twice.body, 0, 15), level=level, budget=budgets[2])
    kept = [rule.quote for rule in last.body.rules]
    assert kept == list(dict.fromkeys(rule.quote for source in recent for rule in source.body.rules))
    assert set(stated) <= set(kept)
    assert all(rule in last_text for last_text in [render(last.body)] for rule in stated)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(
        st.text(max_size=120)
        | st.sampled_from(
            [*STORY, "", "😀😀", "ฉันชื่อมีนา อยู่เชียงใหม่ มีแมว 2 ตัว", "我叫小明，住在北京。明天三点见！", "x" * 500]
        ),
        min_size=1,
        max_size=10,
    ),
    budget=st.integers(0, 400),
    level=st.sampled_from(list(Level)),
)
async def test_no_text_makes_a_summary_exceed_its_budget(texts: list[str], budget: int, level: Level):
    draft = await chunk(texts, budget, level)
    assert cost(draft) <= budget
    assert draft == await chunk(texts, budget, level)
    source = summary(draft.body, 0, len(texts) - 1)
    merged = await SUMMARISER.merge([source, source], tier=Tier.merged, level=level, budget=budget // 2)
    assert cost(merged) <= budget // 2
    assert cost(await SUMMARISER.compress(source, level=level, budget=budget // 3)) <= budget // 3


async def test_the_best_clause_is_shortened_where_none_fits_whole():
    text = "the ship from Bergen carried " + "salted herring and barley " * 12
    draft = await chunk([text.strip()], 20)
    assert 0 < cost(draft) <= 20
    said = draft.body.timeline[0].text.removeprefix("Tom: ")
    assert said.endswith("…")
    assert text.startswith(said[:-1])


async def test_a_tool_answer_counts_less_than_what_people_say():
    said = messages(["We meet at Pier 14 in Bergen.", "The code of the locker is 7731."])
    tool = said[1]._replace(role=Role.tool, author="tool", text="The code of the locker is 7731.")
    draft = await SUMMARISER.chunk([said[0], tool], level=Level.balanced, budget=14)
    assert [line.text.split(":")[0] for line in draft.body.timeline] == ["Tom"]
