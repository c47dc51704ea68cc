"""The rules of the tiers."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.chat import LEVELS, Level
from schemas.chunks import Span
from schemas.summaries import Body, Provenance, Rule, Summary, Tier
from schemas.usage import Stage
from services.summaries import policy

EMPTY = Body()


def summary(
    tier: Tier,
    first: int,
    last: int,
    *,
    tokens: int = 100,
    level: Level = Level.balanced,
    body: Body = EMPTY,
) -> Summary:
    """A summary of messages `first` to `last`."""
    span = Span(
        first_seq=first,
        last_seq=last,
        first_message=f"m{first}",
        last_message=f"m{last}",
        messages=last - first + 1,
    )
    return Summary(
        id=f"{tier}-{first}-{last}",
        chat_id="c",
        tier=tier,
        generation=0,
        span=span,
        body=body,
        text="",
        tokens=tokens,
        provenance=Provenance(model="m", prompt_version="p", level=level, chunk_ids=()),
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def recents(*indexes: int) -> list[Summary]:
    return [summary(Tier.recent, 10 * index, 10 * index + 9) for index in indexes]


def size(summary: Summary) -> int:
    return summary.tokens


@given(st.integers(0, 100_000))
def test_a_chunk_budget_is_about_a_seventh_and_stays_within_its_bounds(tokens: int) -> None:
    budget = policy.chunk_budget(tokens)
    assert 40 <= budget <= 400
    if 300 <= tokens <= 2_600:
        assert abs(budget - 0.15 * tokens) <= 1


@given(st.lists(st.integers(0, 2_000), min_size=4, max_size=4), st.sampled_from(Level))
def test_merging_never_makes_longer(sizes: list[int], level: Level) -> None:
    assert policy.merged_budget(sizes) <= max(40, min(800, sum(sizes)))
    assert policy.long_term_budget(1_000, sizes, level) <= 1_000 + max(40, sum(sizes))


@pytest.mark.rule("S3")
def test_old_detail_fades_soonest_at_key_events() -> None:
    budgets = [policy.long_term_budget(0, [800] * 4, level) for level in Level]
    assert budgets == sorted(budgets)
    assert len(set(budgets)) == 3


@pytest.mark.rule("S4")
@pytest.mark.parametrize(("level", "cap"), [("key_events", 4_000), ("balanced", 8_000), ("detailed", 16_000)])
def test_the_caps_are_those_of_the_table_and_have_a_quarter_of_slack(level: str, cap: int) -> None:
    assert policy.long_term_cap(Level(level)) == cap
    assert not policy.over_cap(cap * 5 // 4, Level(level))
    assert policy.over_cap(cap * 5 // 4 + 1, Level(level))


@pytest.mark.rule("S2")
def test_the_four_oldest_recent_summaries_merge() -> None:
    plan = policy.next_merge(recents(5, 3, 1, 0, 2, 4), size)
    assert plan is not None
    assert (plan.stage, plan.tier) == (Stage.merge, Tier.merged)
    assert [source.span.first_seq for source in plan.sources] == [0, 10, 20, 30]
    assert (plan.span.first_seq, plan.span.last_seq, plan.span.messages) == (0, 39, 40)
    assert (plan.span.first_message, plan.span.last_message) == ("m0", "m39")


@pytest.mark.rule("S2")
def test_fewer_than_four_wait() -> None:
    assert policy.next_merge(recents(0, 1, 2), size) is None
    assert policy.next_merge([], size) is None


@pytest.mark.rule("S2")
@given(st.sets(st.integers(0, 12)))
def test_no_merge_spans_a_gap(indexes: set[int]) -> None:
    plan = policy.next_merge(recents(*indexes), size)
    if {0, 1, 2, 3} <= indexes:
        assert plan is not None
        assert [source.span.first_seq for source in plan.sources] == [0, 10, 20, 30]
    else:
        assert plan is None


def test_recent_summaries_wait_for_the_one_that_follows_what_is_merged() -> None:
    merged = summary(Tier.merged, 0, 39)
    assert policy.next_merge([merged, *recents(5, 6, 7, 8)], size) is None
    plan = policy.next_merge([merged, *recents(4, 5, 6, 7, 8)], size)
    assert plan is not None
    assert plan.span.first_seq == 40


@pytest.mark.rule("S2")
def test_four_merged_summaries_join_the_one_long_term_memory() -> None:
    merged = [summary(Tier.merged, 40 * index, 40 * index + 39) for index in range(5)]
    plan = policy.next_merge(merged[:4], size)
    assert plan is not None
    assert (plan.tier, len(plan.sources)) == (Tier.long_term, 4)

    long_term = summary(Tier.long_term, 0, 39)
    plan = policy.next_merge([*merged[1:], long_term], size)
    assert plan is not None
    assert (plan.tier, plan.sources[0], len(plan.sources)) == (Tier.long_term, long_term, 5)


@pytest.mark.rule("S4")
def test_a_long_term_memory_well_over_its_cap_is_compressed_first() -> None:
    long_term = summary(Tier.long_term, 0, 9, tokens=10_001)
    plan = policy.next_merge([long_term, *recents(1, 2, 3, 4)], size)
    assert plan is not None
    assert (plan.stage, plan.tier, plan.sources) == (Stage.compress, Tier.long_term, (long_term,))
    assert policy.next_merge([long_term.model_copy(update={"tokens": 10_000})], size) is None


@pytest.mark.rule("S4", "S5")
def test_rules_do_not_count_towards_the_cap() -> None:
    long_term = summary(Tier.long_term, 0, 9, tokens=20_000)
    assert policy.next_merge([long_term], lambda _: 9_000) is None


@pytest.mark.rule("S7")
def test_the_cap_is_that_of_the_level_at_the_last_merge() -> None:
    tokens = 2 * LEVELS[Level.key_events].long_term_tokens
    assert policy.next_merge([summary(Tier.long_term, 0, 9, tokens=tokens)], size) is None
    plan = policy.next_merge([summary(Tier.long_term, 0, 9, tokens=tokens, level=Level.key_events)], size)
    assert plan is not None


@pytest.mark.rule("S5")
def test_all_rules_are_passed_on_in_order_and_once() -> None:
    one, two = (
        Rule(quote="Never call me sir.", message_id="m1"),
        Rule(quote="No, it is Ida!", message_id="m5"),
    )
    sources = [
        summary(Tier.recent, 0, 9, body=Body(rules=(one, two))),
        summary(Tier.recent, 10, 19, body=Body(rules=(two, Rule(quote="No, it is Ida!")))),
    ]
    assert policy.passed_on(sources) == (one, two, Rule(quote="No, it is Ida!"))


@pytest.mark.rule("S2")
@given(st.permutations(range(24)))
def test_whatever_the_order_of_arrival_the_tiers_come_out_the_same(order: list[int]) -> None:
    in_use: list[Summary] = []
    for index in order:
        in_use += recents(index)
        while plan := policy.next_merge(in_use, size):
            spans = [source.span for source in plan.sources]
            assert all(a.last_seq + 1 == b.first_seq for a, b in pairwise(spans))
            in_use = [each for each in in_use if each not in plan.sources]
            in_use.append(summary(plan.tier, plan.span.first_seq, plan.span.last_seq))
    tiers = sorted((each.span.first_seq, each.span.last_seq, each.tier) for each in in_use)
    assert tiers == [(0, 159, Tier.long_term), (160, 199, Tier.merged), (200, 239, Tier.merged)]


chains = st.lists(
    st.tuples(st.sampled_from(Tier), st.sampled_from([100, 5_500, 11_000, 21_000]), st.sampled_from(Level)),
    max_size=10,
)


@pytest.mark.rule("S2", "S4")
@given(chains)
def test_where_nothing_can_be_due_there_is_no_plan(parts: list[tuple[Tier, int, Level]]) -> None:
    parts.sort(key=lambda part: part[0] is not Tier.long_term)
    chain = [
        summary(tier, 10 * at, 10 * at + 9, tokens=tokens, level=level)
        for at, (tier, tokens, level) in enumerate(parts)
    ]
    if policy.idle([policy.Head(s.tier, s.tokens, s.provenance.level) for s in chain]):
        assert policy.next_merge(chain, size) is None


@pytest.mark.rule("S2", "W7")
def test_a_group_that_was_taken_apart_merges_again_before_what_follows() -> None:
    """Summaries 0 to 3 are recent again, because a message of theirs was changed; later ones are merged."""
    merged = [summary(Tier.merged, 40 * at, 40 * at + 39) for at in (1, 2, 3, 4)]
    plan = policy.next_merge([*recents(0, 1, 2, 3), *merged], size)
    assert plan is not None
    assert (plan.tier, plan.sources) == (Tier.merged, tuple(recents(0, 1, 2, 3)))
    # as long as one of them is pending, nothing moves
    assert policy.next_merge([*recents(0, 1, 3), *merged], size) is None
    again = summary(Tier.merged, 0, 39)
    plan = policy.next_merge([again, *merged], size)
    assert plan is not None
    assert plan.sources == (again, *merged[:3])
