"""The demo's conversation is long, varied and the same every time."""

from __future__ import annotations

from itertools import chain, pairwise
from statistics import median

import pytest

from schemas.chat import DEFAULT_LEVEL, Level
from schemas.turns import TURN_EVENT, Role, TurnRecorded
from services.tokens.counter import default_counter
from services.window.policy import Turn, bounds, chunks, leaving
from streams.demo import conversation

CHUNK_MESSAGES, CHUNK_TOKENS = 10, 2_000


@pytest.fixture(scope="module")
def events() -> list[TurnRecorded]:
    return list(conversation.turns())


def closed_chunks(events: list[TurnRecorded]) -> int:
    """Chunks that close when the events go through the rules of the window one after the other."""
    count = default_counter()
    live: list[Turn] = []
    pending: list[Turn] = []
    closed, level = 0, DEFAULT_LEVEL
    for event in events:
        level = event.memory.level or level
        live.append(Turn(len(event.messages), sum(count(message.text) for message in event.messages)))
        assert event.model
        gone = leaving(live, bounds(level, event.model.context_window))
        pending, live = pending + live[:gone], live[gone:]
        sizes = chunks(pending, CHUNK_MESSAGES, CHUNK_TOKENS)
        pending = pending[sum(sizes) :]
        closed += len(sizes)
    return closed


def test_it_is_long_enough_for_three_tiers(events: list[TurnRecorded]) -> None:
    assert len(events) >= 260
    # 4 recent make a merged one, 4 merged a long-term memory: 16 chunks, and some stay recent
    assert closed_chunks(events) >= 20


def test_the_same_arguments_give_the_same_events(events: list[TurnRecorded]) -> None:
    assert list(conversation.turns()) == events
    others = {event.id for event in conversation.turns(chat="another")}
    assert not others & {event.id for event in events}


def test_every_event_is_what_a_frontend_may_write(events: list[TurnRecorded]) -> None:
    for event in events:
        assert TURN_EVENT.validate_json(event.model_dump_json(exclude_none=True)) == event
    assert len({event.id for event in events}) == len({event.turn.id for event in events}) == len(events)
    times = [event.at for event in events if event.at]
    assert times == sorted(set(times))
    assert len(times) == len(events)


def test_turns_are_a_question_and_its_answer_after_one_greeting(events: list[TurnRecorded]) -> None:
    roles = [tuple(message.role for message in event.messages) for event in events]
    assert roles[0] == (Role.assistant,)
    assert set(roles[1:]) == {(Role.user, Role.assistant)}


def test_it_reads_like_a_conversation(events: list[TurnRecorded]) -> None:
    texts = [message.text for message in chain.from_iterable(event.messages for event in events)]
    words = [len(text.split()) for text in texts]
    assert len(set(texts)) == len(texts)
    assert min(words) <= 3
    assert 100 <= max(words) <= 170
    assert 10 <= median(words) <= 60
    assert sum(any("฀" <= letter <= "๿" for letter in text) for text in texts) >= 6
    assert sum(any(word in text.split() for word in ("nicht", "ist", "und")) for text in texts) >= 12
    everything = "\n".join(texts).lower()
    for mark in ("ooc", "remember:", "merk dir", "จำไว้นะ", "correction:", "i promise"):
        assert mark in everything


def test_level_and_model_change_once(events: list[TurnRecorded]) -> None:
    assert [event.memory.level for event in events if event.memory.level] == [Level.detailed]
    models = [event.model.name for event in events if event.model]
    assert sum(a != b for a, b in pairwise(models)) == 1
