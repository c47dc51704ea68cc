"""What goes into a context and what is left out, over all kinds of chats and budgets."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from schemas.chat import Level
from schemas.context import ContextView, Part, Reason
from schemas.summaries import Tier
from services.context import rows
from services.context.policy import Context, assemble, rules_text
from services.context.snapshot import Snapshot, StoredMessage, StoredSummary
from services.context.views import context_json
from tests.gateway import words


def message(seq: int, tokens: int, turn: int) -> StoredMessage:
    row = to_json((f"m{seq}", "user", "u1", "text", tokens, 1_000 * seq, f"t{turn}"))
    [found] = rows.messages({b"%d" % seq: row})
    return found


def stored(tier: Tier, first: int, last: int, tokens: int, rules: tuple[str, ...] = ()) -> StoredSummary:
    span = {
        "first_seq": first,
        "last_seq": last,
        "first_message": f"m{first}",
        "last_message": f"m{last}",
        "messages": last - first + 1,
    }
    body = {"timeline": [], "rules": [{"quote": quote, "author": "u1"} for quote in rules]}
    name = f"{tier}-{first}"
    text = to_json(f"text of {name}")
    return StoredSummary(name, tier, text, tokens, 1, {"id": name, "span": span, "body": body})


def snapshot(
    live: list[StoredMessage],
    pending: list[StoredMessage] | None = None,
    summaries: list[StoredSummary] | None = None,
    model_context: int | None = None,
) -> Snapshot:
    return Snapshot(
        chat="c1",
        user="u1",
        generation=0,
        version=1,
        level=Level.balanced,
        model=None,
        model_context=model_context,
        turns=1,
        messages=1,
        summarised=0,
        chunks=0,
        pending=pending or [],
        live=live,
        summaries=summaries or [],
    )


@st.composite
def chats(draw: st.DrawFn) -> Snapshot:
    """Merged tiers first, then recent summaries, pending and live messages, in the order of the chat."""
    sizes = st.integers(0, 60)
    seq, found = 0, []
    for tier, most in ((Tier.long_term, 1), (Tier.merged, 4), (Tier.recent, 4)):
        for _ in range(draw(st.integers(0, most))):
            rules = draw(st.sampled_from([(), ("never say never",), ("a b", "c d e")]))
            found.append(stored(tier, seq, seq + 9, draw(sizes), rules))
            seq += 10
    messages, turn = [], 0
    for _ in range(draw(st.integers(1, 12))):
        turn += draw(st.integers(0, 1))
        messages.append(message(seq, draw(sizes), turn))
        seq += 1
    # turns leave the window whole
    starts = [at for at, each in enumerate(messages) if at == 0 or messages[at - 1].turn != each.turn]
    border = draw(st.sampled_from(starts))
    return snapshot(messages[border:], messages[:border], found)


def included_ids(context: Context) -> list[str]:
    parts = [context.summaries[part] for part in (Part.long_term, Part.merged, Part.recent)]
    ids = [each.summary.id for part in parts for each in part if not each.shortened]
    return [*ids, *(message.id for message in (*context.pending, *context.live))]


@pytest.mark.rule("F2", "W4")
@given(chats(), st.none() | st.integers(1, 800), st.integers(0, 100))
def test_everything_is_in_or_left_out_once_and_the_budget_is_kept(
    chat: Snapshot, window: int | None, reserve: int
) -> None:
    context = assemble(chat, window, reserve, words)
    everything = [*(each.id for each in chat.summaries), *(each.id for each in (*chat.pending, *chat.live))]
    left_out = [id for omission in context.left_out for id in omission.ids]
    assert sorted([*included_ids(context), *left_out]) == sorted(everything)

    view = ContextView.model_validate_json(context_json(chat, context))
    assert view.totals.tokens == sum(part.tokens for part in view.parts)
    assert view.totals.left_out_tokens == sum(each.tokens for each in view.left_out)
    assert [part.part for part in view.parts] == list(Part)
    newest = [each.id for each in chat.live if each.turn == chat.live[-1].turn]
    assert [each.id for each in context.live][-len(newest) :] == newest
    if window is None:
        assert not view.left_out
        assert view.totals.budget is None
    elif view.totals.over_budget:
        assert [each.id for each in (*context.pending, *context.live)] == newest
    else:
        assert view.totals.tokens <= max(0, window - reserve)
    assert all(each.limit == view.totals.budget for each in view.left_out)


@pytest.mark.rule("W6")
@given(chats(), st.integers(1, 800))
def test_what_is_kept_is_a_gapless_end_of_the_chat(chat: Snapshot, window: int) -> None:
    context = assemble(chat, window, 0, words)
    order = [*(each.id for each in chat.summaries), *(each.id for each in (*chat.pending, *chat.live))]
    whole = included_ids(context)
    assert whole == order[len(order) - len(whole) :]


@pytest.mark.rule("S5")
@given(chats(), st.integers(1, 800))
def test_rules_stand_alone_where_their_summary_does_not_fit(chat: Snapshot, window: int) -> None:
    context = assemble(chat, window, 0, words)
    by_id = {each.id: each for each in chat.summaries}
    for omission in context.left_out:
        for summary in (by_id[id] for id in omission.ids if id in by_id):
            rules = rules_text(summary)
            texts = [from_json(each.text) for part in context.summaries.values() for each in part]
            if omission.reason is Reason.rules_only:
                assert rules in texts
            elif rules:
                # its place is judged before what is farther: at the end there is no more room than there was
                assert not context.fits(words(rules) + 1) or context.over_budget


@pytest.mark.rule("W6", "F2")
def test_nothing_is_left_out_where_all_fits() -> None:
    chat = snapshot(
        [message(40, 10, 2)],
        [message(39, 10, 1)],
        [
            stored(Tier.long_term, 0, 9, 100),
            stored(Tier.merged, 10, 19, 50),
            stored(Tier.recent, 20, 29, 20),
            stored(Tier.recent, 30, 38, 20),
        ],
    )
    context = assemble(chat, 221, 10, words)
    assert context.left_out == []
    assert context.tokens == 10 + 10 + (20 + 1 + 20) + 50 + 100
    view = from_json(context_json(chat, context))
    assert view["parts"][3]["text"] == "text of recent-20\n\ntext of recent-30"
    assert view["parts"][3]["span"]["messages"] == 19


@pytest.mark.rule("F2")
def test_the_farthest_goes_first_and_says_why() -> None:
    chat = snapshot(
        [message(30, 40, 3), message(31, 10, 4)],
        [message(28, 5, 1), message(29, 60, 2)],
        [stored(Tier.recent, 10, 27, 8, ("no dragons, ever",)), stored(Tier.merged, 0, 9, 3)],
    )
    context = assemble(chat, 100, 40, words)
    assert [each.id for each in context.live] == ["m30", "m31"]
    assert [(each.part, each.ids, each.tokens, each.reason) for each in context.left_out] == [
        (Part.merged, ("merged-0",), 3, Reason.hole),
        (Part.recent, ("recent-10",), 3, Reason.rules_only),
        (Part.pending, ("m28",), 5, Reason.hole),
        (Part.pending, ("m29",), 60, Reason.over_budget),
    ]
    (shortened,) = context.summaries[Part.recent]
    assert from_json(shortened.text) == 'Rules:\nu1: "no dragons, ever"'


@pytest.mark.rule("W4")
def test_the_newest_turn_stays_even_alone_over_the_budget() -> None:
    chat = snapshot([message(0, 1, 0), message(1, 500, 1), message(2, 500, 1)], model_context=100)
    context = assemble(chat, None, 0, words)
    assert [each.id for each in context.live] == ["m1", "m2"]
    assert context.over_budget
    assert from_json(context_json(chat, context))["totals"]["budget"] == 100


@pytest.mark.rule("F2")
@pytest.mark.parametrize(
    ("asked", "known", "budget"), [(None, None, None), (None, 900, 800), (500, 900, 400), (50, 900, 0)]
)
def test_the_budget_is_of_the_model_asked_for_else_of_the_last_one(
    asked: int | None, known: int | None, budget: Any
) -> None:
    assert assemble(snapshot([message(0, 1, 0)], model_context=known), asked, 100, words).budget == budget
