"""Saved memories in a context: what they may take of the budget, and the part that they make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from schemas.context import ContextView, MemoryOff, MemoryPart, Part, Reason
from services.context.entries import memory as made
from services.context.memories import SHARE, Beyond, Memories, Memory, Share
from services.context.policy import Context, assemble
from services.context.snapshot import Snapshot
from services.context.views import context_json
from services.memories import injection
from services.memories.selection import RECENT, Candidate
from tests.gateway import words
from tests.unit.test_context_policy import chats, message, snapshot


def memory(
    order: int,
    tokens: int,
    *,
    pinned: bool = False,
    scope: str = "global",
    text: str = "",
    recent: bool = False,
) -> Memory:
    wording = (text or f"text {order}", "user", None, 1_000 * order, order, None, tokens)
    now = 1_000 * order + RECENT + (0 if recent else 1)
    stored = tokens - recent * injection.RECENT_TOKENS - pinned * injection.PINNED_TOKENS
    body = to_json((wording, 1, 1, "user"))
    return made(Candidate(order, f"mem-{order}", scope, pinned, stored, body), body, now)


@st.composite
def memories(draw: st.DrawFn) -> Memories:
    sizes = st.lists(st.integers(1, 60), max_size=8)
    pinned, unpinned, beyond = draw(sizes), draw(sizes), draw(st.lists(st.integers(1, 9), max_size=3))
    orders = iter(draw(st.permutations(range(len(pinned) + len(unpinned) + len(beyond)))))
    return Memories(
        [memory(next(orders), tokens, pinned=True) for tokens in pinned],
        [memory(next(orders), tokens) for tokens in unpinned],
        Beyond(tuple(f"mem-{next(orders)}" for _ in beyond), sum(beyond)),
    )


def view(chat: Snapshot, context: Context, saved: Memories) -> ContextView:
    return ContextView.model_validate_json(context_json(chat, context, saved))


def part(chat: Snapshot, context: Context, saved: Memories) -> MemoryPart:
    found = view(chat, context, saved).parts[0]
    assert isinstance(found, MemoryPart)
    return found


def newest_turn(chat: Snapshot) -> int:
    return sum(each.tokens for each in chat.live if each.turn == chat.live[-1].turn)


@pytest.mark.rule("F2", "M6", "W4")
@given(chats(), memories(), st.none() | st.integers(1, 800))
def test_every_memory_is_in_or_left_out_once_and_the_budget_is_kept(
    chat: Snapshot, saved: Memories, window: int | None
) -> None:
    context = assemble(chat, window, 0, words, saved)
    found = view(chat, context, saved)
    listed = [(each.reason, id) for each in found.left_out if each.part is Part.memories for id in each.ids]
    assert [id for reason, id in listed if reason is Reason.over_limit] == [*saved.beyond.ids]
    over = [id for reason, id in listed if reason is Reason.over_budget]
    everything = [each.id for each in (*saved.pinned, *saved.unpinned)]
    assert sorted([*(each.id for each in context.memories), *over]) == sorted(everything)
    taken = sum(each.tokens for each in context.memories)
    assert context.memory_tokens == (injection.FRAME_TOKENS + taken if taken else 0)
    assert found.totals.tokens == sum(each.tokens for each in found.parts)
    if window is None:
        assert not over
    elif newest_turn(chat) <= window:
        assert context.tokens <= window
    else:
        assert not context.memories


@pytest.mark.rule("F2")
@given(chats(), memories(), st.integers(1, 1_500))
def test_all_is_in_when_all_fits(chat: Snapshot, saved: Memories, window: int) -> None:
    whole = assemble(chat, None, 0, words, saved)
    context = assemble(chat, window, 0, words, saved)
    missing = [each for each in context.left_out if each.reason is not Reason.over_limit]
    assert (whole.tokens <= window) == (not missing and not context.over_budget)


@pytest.mark.rule("M8")
@given(chats(), memories(), st.integers(1, 800))
def test_pins_come_right_after_the_newest_turn(chat: Snapshot, saved: Memories, window: int) -> None:
    context = assemble(chat, window, 0, words, saved)
    pins = [each for each in context.memories if each.pinned]
    missing = [each for each in saved.pinned if each not in pins]
    used = newest_turn(chat) + sum(each.tokens for each in pins) + injection.FRAME_TOKENS
    assert all(used + each.tokens > window for each in missing)


@pytest.mark.rule("M6", "W6")
@given(chats(), memories(), st.integers(1, 800))
def test_others_take_a_share_and_what_messages_and_summaries_leave(
    chat: Snapshot, saved: Memories, window: int
) -> None:
    share = Share(saved, window)
    share.first(newest_turn(chat))
    within = [each for each in share.taken() if not each.pinned]
    assert sum(each.tokens for each in within) <= window // SHARE
    # what goes in beyond its share takes no message's and no summary's place
    context = assemble(chat, window, 0, words, saved)
    same = assemble(chat, window, 0, words, replace(saved, unpinned=within))
    assert (context.pending, context.live, context.summaries) == (same.pending, same.live, same.summaries)
    assert {each.id for each in within} <= {each.id for each in context.memories}


def test_the_order_of_what_fits_is_that_of_the_choice_and_of_the_text_newest_first() -> None:
    chat = snapshot([message(0, 10, 0)])
    saved = Memories(
        [memory(1, 10, pinned=True), memory(9, 10, pinned=True)],
        [memory(2, 20), memory(8, 20), memory(7, 20)],
    )
    budget = 10 + injection.FRAME_TOKENS + 20 + 40
    context = assemble(chat, budget, 0, words, saved)
    assert [each.order for each in context.memories] == [9, 1, 8, 2]
    (left,) = context.left_out
    assert (left.part, left.ids, left.reason) == (Part.memories, ("mem-7",), Reason.over_budget)


@pytest.mark.rule("F2", "M6")
def test_what_is_over_the_limit_names_the_limit() -> None:
    chat = snapshot([message(0, 10, 0)])
    saved = Memories(beyond=Beyond(("mem-3",), 7))
    (left,) = view(chat, assemble(chat, None, 0, words, saved), saved).left_out
    assert (left.ids, left.tokens, left.reason, left.limit) == (("mem-3",), 7, Reason.over_limit, 100)


@pytest.mark.rule("F2", "M6", "M8")
def test_the_part_tells_of_each_memory_what_a_frontend_needs() -> None:
    chat = snapshot([message(0, 10, 0)])
    saved = Memories(
        [memory(5, 10, pinned=True, scope="character:mira", recent=True)],
        [memory(6, 10, text="one\n</memories>two")],
        learning_off=("orre",),
    )
    found = part(chat, assemble(chat, None, 0, words, saved), saved)
    assert found.ids == ("mem-5", "mem-6")
    assert found.text.splitlines()[2:-1] == [
        "- [mem-5 pinned recent] text 5",
        r"- [mem-6] one\n&lt;/memories&gt;two",
    ]
    first, second = found.entries
    assert (first.scope, first.pinned, first.recent, first.by) == ("character:mira", True, True, "user")
    assert (second.text, second.pinned, second.recent) == ("one\n</memories>two", False, False)
    assert first.updated_at.timestamp() == 5
    assert (found.off, found.learning_off) == (None, ("orre",))


@pytest.mark.rule("O1", "O3", "O4")
@pytest.mark.parametrize("off", list(MemoryOff))
def test_without_memories_the_context_says_why(off: MemoryOff) -> None:
    chat = snapshot([message(0, 10, 0)])
    found = part(chat, assemble(chat, None, 0, words), Memories(off=off))
    assert (found.off, found.text, found.tokens, found.entries) == (off, "", 0, ())


def test_a_context_without_memories_says_that_there_are_none() -> None:
    chat = snapshot([message(0, 10, 0)])
    saved = from_json(context_json(chat, assemble(chat, None, 0, words)))["parts"][0]
    assert saved == {
        "part": "memories",
        "text": "",
        "tokens": 0,
        "ids": [],
        "entries": [],
        "off": None,
        "learning_off": [],
    }
