"""What is wrong is said in words for who wrote it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from schemas.errors import said
from schemas.turns import TURN_EVENT

EVENT: dict[str, Any] = {
    "type": "chat.deleted",
    "id": "e1",
    "at": "2026-11-30T10:00:00Z",
    "chat": {"id": "c1"},
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"type": "chat.exploded"}, "type is none of 'turn.recorded'"),
        ({"type": None}, "type is none of 'turn.recorded'"),
        ({"id": "no spaces"}, "May not have white space, control characters or braces"),
        ({"at": "1969-12-31T23:59:59Z"}, "lies outside the years"),
    ],
)
def test_without_the_library_s_terms(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TURN_EVENT.validate_python({**EVENT, **changes})
    [message] = [said(error) for error in caught.value.errors()]
    assert message.startswith(words)
    assert "exploded" not in message


def test_a_type_that_is_missing_is_said_to_be() -> None:
    with pytest.raises(ValidationError) as caught:
        TURN_EVENT.validate_python({"id": "e1"})
    assert [said(error) for error in caught.value.errors()] == ["type is missing"]
