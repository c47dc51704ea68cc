"""What a fork shares with its source, and what is its own (W8)."""

from __future__ import annotations

import re
from typing import Any

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError

from schemas.delivery import Topics
from schemas.summaries import SummarySaved, Tier
from schemas.usage import UsageBooked
from services.state import outbox
from services.summaries import announce
from services.summaries import store as summaries
from services.takeback import fork
from services.work import Work
from tests.integration.takeback_state import announced, check
from tests.integration.test_takeback import Chat, of


@pytest.fixture
def chat(redis: Redis) -> Chat:
    return Chat(redis)


def forked(turn: int) -> dict[str, Any]:
    return {"type": "chat.forked", "source": {"chat": "c1", "turn": f"t{turn}"}}


async def unmerged(chat: Chat, turns: int) -> list[SummarySaved]:
    """Turns whose chunks are summarised and nothing more; what announces the summaries."""
    saved = []
    for number in range(turns):
        work = await chat.take(chat.turn(number))
        said = chat.turn(number)["messages"]
        chat.turns.append((f"t{number}", "", [(m["id"], m["text"]) for m in said]))
        for chunk in announced(work)[0]:
            summarised = await chat.summaries.summarise(chunk)
            assert summarised.confirmed is not None
            await summarised.confirmed()
            saved += announced(summarised)[1]
    return saved


@pytest.mark.rule("W8", "C1")
async def test_a_fork_asks_for_its_own_merge_and_pays_for_it(
    chat: Chat, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = (await unmerged(chat, 15))[-1]
    await chat.take(forked(14), "f1")
    calls = chat.quoting.calls

    async def away(*_: Any) -> bool:
        raise ConnectionError

    # the answer for the source waits for the store
    with monkeypatch.context() as patched:
        patched.setattr(summaries, "save_merged", away)
        with pytest.raises(ConnectionError):
            await chat.summaries.merge(event)
    works = [await chat.summaries.merge(event.model_copy(update={"chat_id": "f1"}))]
    assert chat.quoting.calls == calls + 2
    works.append(await chat.summaries.merge(event))
    assert chat.quoting.calls == calls + 2
    booked = [UsageBooked.model_validate_json(v) for work in works for v in of(work.publish, Topics.USAGE)]
    assert [use.chat_id for use in booked] == ["f1", "c1"]


@pytest.mark.rule("W8")
async def test_an_announcement_is_of_one_chat(chat: Chat) -> None:
    await unmerged(chat, 15)
    await chat.take(forked(14), "f1")
    both = [(await chat.state(name)).summaries[0] for name in ("c1", "f1")]
    assert both[0].id == both[1].id
    fields = [announce.saved(summary, "u1", summary.created_at) for summary in both]
    events = [
        SummarySaved.model_validate_json(record.value or b"")
        for field in fields
        for record in outbox.outgoing(field.values())
    ]
    assert len({event.id for event in events}) == 2


@pytest.mark.rule("W8", "S2")
async def test_a_merge_that_was_due_in_the_source_is_due_in_the_fork(chat: Chat) -> None:
    saved = await unmerged(chat, 15)
    assert len(saved) >= 4
    work = await chat.take(forked(14), "f1")
    [event] = announced(work)[1]
    assert event.chat_id == "f1"
    # the same summary, announced for another chat
    assert event.id not in {each.id for each in saved}
    assert (event.summary_id, event.span) == (saved[-1].summary_id, saved[-1].span)
    await chat._merge(Work(work.publish))
    state = await chat.state("f1")
    check(state, chat.turns)
    assert [summary.tier for summary in state.summaries][:1] == [Tier.merged]


@pytest.mark.rule("W8")
async def test_a_fork_whose_merges_are_done_announces_nothing(chat: Chat) -> None:
    await chat.record(*range(20))
    assert announced(await chat.take(forked(19), "f1")) == ([], [])


@pytest.mark.rule("W8")
async def test_a_chat_that_is_too_large_to_be_copied_at_once_says_so(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.record(*range(20))
    monkeypatch.setattr(fork, "FORK_BYTES", 1_000)
    reason = await chat.refused(forked(19), "f1")
    assert re.fullmatch(r"source\.chat: has \d{4,5} bytes in Redis, the limit of a fork is 1000", reason)
