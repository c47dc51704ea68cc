"""The rules of the window for any turns and any bounds (W1 to W5, S1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.chat import LEVELS, Level, Surface
from services.window.policy import Bounds, Turn, bounds, chunks, leaving, level_of

turn_lists = st.lists(st.builds(Turn, st.integers(1, 12), st.integers(0, 4_000)), max_size=40)
limits = st.builds(Bounds, st.integers(0, 16_000), st.integers(1, 80))
levels = st.sampled_from(Level)


def _fits(turns: list[Turn], limit: Bounds) -> bool:
    return sum(t.messages for t in turns) <= limit.messages and sum(t.tokens for t in turns) <= limit.tokens


@pytest.mark.rule("W1")
def test_the_table_of_levels() -> None:
    assert {level.value: tuple(LEVELS[level]) for level in Level} == {
        "key_events": (6_000, 30, 4_000),
        "balanced": (10_000, 50, 8_000),
        "detailed": (16_000, 80, 16_000),
    }


@pytest.mark.rule("W1", "W3")
@given(levels, st.none() | st.integers(1, 100_000_000))
def test_the_smallest_bound_wins_and_a_large_model_adds_nothing(
    level: Level, context_window: int | None
) -> None:
    limit = bounds(level, context_window)
    assert limit.messages == LEVELS[level].messages
    assert limit.tokens <= LEVELS[level].tokens
    if context_window is None or context_window >= 4 * LEVELS[level].tokens:
        assert limit.tokens == LEVELS[level].tokens
    else:
        assert 4 * limit.tokens <= context_window < 4 * (limit.tokens + 1)


@pytest.mark.rule("W3")
def test_a_million_token_model_keeps_no_more() -> None:
    assert bounds(Level.balanced, 1_000_000) == bounds(Level.balanced, 64_000) == Bounds(10_000, 50)
    assert bounds(Level.balanced, 8_192) == Bounds(2_048, 50)


@pytest.mark.rule("W1", "W4")
@given(turn_lists, limits)
def test_the_oldest_leave_and_no_more_than_needed(live: list[Turn], limit: Bounds) -> None:
    gone = leaving(live, limit)
    assert 0 <= gone <= max(0, len(live) - 1)
    kept = live[gone:]
    # what stays fits, or is the newest turn alone
    assert _fits(kept, limit) or len(kept) == 1 or not live
    # one turn less would not have been enough
    assert gone == 0 or not _fits(live[gone - 1 :], limit)


@pytest.mark.rule("W4")
@given(limits)
def test_the_newest_turn_stays_even_alone_over_the_bound(limit: Bounds) -> None:
    too_large = Turn(limit.messages + 1, limit.tokens + 1)
    assert leaving([Turn(2, 10), Turn(2, 10), too_large], limit) == 2
    assert leaving([too_large], limit) == 0


@pytest.mark.rule("W5")
@given(turn_lists, levels, levels, st.integers(1, 200_000))
def test_a_smaller_level_or_model_makes_at_least_as_many_leave(
    live: list[Turn], one: Level, other: Level, context_window: int
) -> None:
    larger, smaller = sorted((one, other), key=lambda level: LEVELS[level].tokens, reverse=True)
    assert leaving(live, bounds(smaller, None)) >= leaving(live, bounds(larger, None))
    assert leaving(live, bounds(one, context_window)) >= leaving(live, bounds(one, None))


@pytest.mark.rule("W2")
@given(st.none() | levels)
def test_discord_and_telegram_are_always_balanced(named: Level | None) -> None:
    assert level_of(Surface.discord, named) is Level.balanced
    assert level_of(Surface.telegram, named) is Level.balanced
    assert level_of(Surface.web, named) is named
    assert level_of(Surface.api, named) is named


@pytest.mark.rule("S1")
@given(turn_lists, st.integers(1, 20), st.integers(1, 4_000))
def test_chunks_are_whole_turns_closed_as_soon_as_there_is_enough(
    pending: list[Turn], messages: int, tokens: int
) -> None:
    def enough(turns: list[Turn]) -> bool:
        return sum(t.messages for t in turns) >= messages or sum(t.tokens for t in turns) >= tokens

    at = 0
    for size in chunks(pending, messages, tokens):
        chunk = pending[at : at + size]
        assert len(chunk) == size >= 1
        assert enough(chunk)
        assert not enough(chunk[:-1])
        at += size
    assert not enough(pending[at:])


@pytest.mark.rule("S1")
@given(turn_lists, turn_lists)
def test_chunks_do_not_depend_on_when_they_are_looked_for(first: list[Turn], more: list[Turn]) -> None:
    early = chunks(first, 10, 2_000)
    rest = first[sum(early) :] + more
    assert early + chunks(rest, 10, 2_000) == chunks(first + more, 10, 2_000)
