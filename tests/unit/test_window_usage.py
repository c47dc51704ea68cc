"""The usage that the window writes by hand is what the model would write."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.chat import ChatRef, UserRef
from schemas.delivery import Topics
from schemas.turns import Message, ModelRef, Role, TokenUsage, TurnRecorded, TurnRef
from schemas.usage import Stage, UsageBooked
from services.state import ids
from services.window.incoming import usage as booked

AT = 1_780_000_000_123


def _turn(**changes: Any) -> TurnRecorded:
    message = Message(id="m", role=Role.user, text="")
    fields: dict[str, Any] = {
        "id": "e",
        "chat": ChatRef(id="c"),
        "turn": TurnRef(id="t"),
        "messages": (message,),
    }
    return TurnRecorded(**(fields | changes))


@pytest.mark.rule("C1")
@given(
    user=st.one_of(st.none(), st.just(UserRef(id="ü"))),
    characters=st.sampled_from([(), ("mira",), ("mira", "ploy")]),
    model=st.one_of(st.none(), st.just(ModelRef(name='a "model"'))),
    usage=st.builds(TokenUsage, prompt_tokens=st.integers(0, 10**8), completion_tokens=st.integers(0, 10**8)),
)
def test_it_is_what_the_model_would_write(
    user: UserRef | None, characters: tuple[str, ...], model: ModelRef | None, usage: TokenUsage
) -> None:
    event = _turn(chat=ChatRef(id="c", characters=characters), user=user, model=model, usage=usage)
    expected = UsageBooked(
        id=ids.derive("usage", Stage.reply, "c", "t", "d"),
        at=datetime.fromtimestamp(AT / 1000, UTC),
        user_id=user.id if user else None,
        chat_id="c",
        character=characters[0] if characters else None,
        model=model.name if model else "unknown",
        stage=Stage.reply,
        tokens_in=usage.prompt_tokens,
        tokens_out=usage.completion_tokens,
    )
    (record,) = booked(event, "d", AT)
    assert UsageBooked.model_validate_json(record.value) == expected
    assert json.loads(record.value) == json.loads(expected.model_dump_json(exclude_none=True))
    assert (record.topic, record.key) == (Topics.USAGE, (user.id if user else "c").encode())


def test_a_turn_without_usage_books_nothing() -> None:
    assert booked(_turn(), "d", AT) == ()
