"""Which messages make a turn, for any sequence of messages."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from schemas import limits
from schemas.base import Id
from schemas.chat import Surface
from schemas.turns import Role
from services.imports import policy
from services.imports.events import event
from services.imports.policy import Grouping, Turn
from services.imports.port import ChatStart, SourceMessage
from services.imports.service import outgoing

ROLES = st.sampled_from([Role.user, Role.assistant])


def message(number: int, role: Role, text: str = "x") -> SourceMessage:
    return SourceMessage(str(number), role, "", text, None)


def grouped(messages: list[SourceMessage]) -> tuple[list[Turn], int]:
    """(turns, unanswered messages)."""
    grouping = Grouping()
    turns = [turn for one in messages if (turn := grouping.add(one))]
    waiting = grouping.unanswered
    last = grouping.finish()
    return [*turns, last] if last else turns, waiting


@given(st.lists(ROLES, max_size=40))
def test_every_message_is_in_one_turn_or_waits(roles: list[Role]) -> None:
    messages = [message(number, role) for number, role in enumerate(roles)]
    turns, waiting = grouped(messages)
    used = [one for turn in turns for one in turn.messages]
    assert used == messages[: len(messages) - waiting]
    assert all(one.role is Role.user for one in messages[len(used) :])
    assert [turn.read for turn in turns] == [
        sum(len(turn.messages) for turn in turns[: n + 1]) for n in range(len(turns))
    ]


@given(st.lists(ROLES, max_size=40))
def test_a_turn_is_questions_and_then_answers(roles: list[Role]) -> None:
    turns, _ = grouped([message(number, role) for number, role in enumerate(roles)])
    for number, turn in enumerate(turns):
        kinds = [one.role for one in turn.messages]
        changes = [(before, after) for before, after in pairwise(kinds) if before is not after]
        assert changes == ([(Role.user, Role.assistant)] if kinds[0] is Role.user else [])
        assert number == 0 or kinds[0] is Role.user


@given(st.lists(ROLES, max_size=40), st.integers(0, 39))
def test_going_on_behind_a_turn_gives_the_same_turns(roles: list[Role], stop: int) -> None:
    messages = [message(number, role) for number, role in enumerate(roles)]
    turns, _ = grouped(messages)
    done = turns[: stop % (len(turns) + 1)]
    read = done[-1].read if done else 0
    grouping = Grouping(read)
    rest = [turn for one in messages[read:] if (turn := grouping.add(one))]
    last = grouping.finish()
    assert done + rest + ([last] if last else []) == turns


@given(st.lists(ROLES, max_size=30), st.lists(ROLES, max_size=10))
def test_a_longer_file_begins_with_the_same_turns(before: list[Role], added: list[Role]) -> None:
    """All but the last one, which may have grown."""
    longer = [message(number, role) for number, role in enumerate(before + added)]
    old, _ = grouped(longer[: len(before)])
    new, _ = grouped(longer)
    assert new[: len(old) - 1] == old[:-1] or len(old) <= 1


@given(st.lists(st.tuples(ROLES, st.integers(1, limits.MESSAGE_BYTES)), min_size=1, max_size=12))
def test_an_event_is_never_over_its_limit(sizes: list[tuple[Role, int]]) -> None:
    messages = [message(number, role, "ü" * (size // 2 + 1)) for number, (role, size) in enumerate(sizes)]
    messages = [one for one in messages if policy.refusal(one.text) is None]
    for turn in grouped(messages)[0]:
        record = outgoing(event(ChatStart("c" * limits.ID_CHARACTERS, Surface.web), turn, "u"))
        assert len(record.value) <= limits.EVENT_BYTES


def test_many_messages_in_a_row_are_divided() -> None:
    turns, _ = grouped([message(number, Role.assistant) for number in range(450)])
    assert [len(turn.messages) for turn in turns] == [200, 200, 50]


@given(st.text())
def test_an_identifier_is_one(name: str) -> None:
    TypeAdapter(Id).validate_python(policy.identifier(name))
