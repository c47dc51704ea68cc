"""From bytes to events: anything at all is an event or poison with a reason, and no reason quotes a chat."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas import limits
from schemas.delivery import Record
from schemas.turns import TURN_EVENT, TurnRecorded
from services.failures import Poison
from streams.runtime.decoding import check_key, decode

SECRET = "Wir treffen uns am Leuchtturm"


def _record(value: bytes | None, key: bytes | None = b"c1") -> Record:
    return Record("chat.turns.v1", 0, 0, key, value, (), 0)


def _event(**changes: Any) -> dict[str, Any]:
    return {
        "type": "turn.recorded",
        "id": "e1",
        "chat": {"id": "c1"},
        "turn": {"id": "t1"},
        "messages": [{"id": "m1", "role": "user", "text": SECRET}],
        **changes,
    }


def _reason(value: bytes | None) -> str:
    with pytest.raises(Poison) as raised:
        decode(TURN_EVENT, _record(value))
    return str(raised.value)


def _reason_of(**changes: Any) -> str:
    return _reason(json.dumps(_event(**changes)).encode())


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
fields = st.sampled_from(
    ["type", "id", "at", "chat", "user", "turn", "messages", "model", "usage", "memory", "message", "source"]
)
types = st.sampled_from(
    [
        "turn.recorded",
        "turn.regenerated",
        "chat.rewound",
        "message.edited",
        "message.deleted",
        "chat.forked",
        "chat.deleted",
    ]
)


@given(st.binary(max_size=400))
def test_any_bytes(value: bytes) -> None:
    with pytest.raises(Poison):
        decode(TURN_EVENT, _record(value))


@given(json_values)
def test_any_json(value: Any) -> None:
    with pytest.raises(Poison):
        decode(TURN_EVENT, _record(json.dumps(value).encode()))


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(types, st.dictionaries(fields, json_values, max_size=5))
def test_an_event_with_anything_in_its_fields(kind: str, changes: dict[str, Any]) -> None:
    value = json.dumps(_event(**{"type": kind, **changes})).encode()
    try:
        event = decode(TURN_EVENT, _record(value))
        check_key(_record(value), event.chat.id, "chat.id")
    except Poison as poison:
        reason = str(poison)
    else:
        reason = ""
    assert SECRET not in reason
    assert len(reason) < 2_000


@given(st.text(max_size=30))
def test_any_text_of_a_message_is_read_as_it_is_or_refused(text: str) -> None:
    value = json.dumps(_event(messages=[{"id": "m1", "role": "user", "text": text}])).encode()
    try:
        event = decode(TURN_EVENT, _record(value))
    except Poison:
        # json.dumps writes a lone surrogate as an escape; it has no UTF-8
        with pytest.raises(UnicodeEncodeError):
            text.encode()
    else:
        assert isinstance(event, TurnRecorded)
        assert event.messages[0].text == text


def test_depth_without_end_is_poison() -> None:
    assert _reason(b"[" * 500_000).startswith("value: Invalid JSON")
    memory = b'{"ops": [' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"]}"
    value = json.dumps(_event(memory="HERE")).encode().replace(b'"HERE"', memory)
    assert "recursion" in _reason(value)


def test_reasons_name_the_field() -> None:
    assert _reason(None) == "value: missing"
    assert _reason_of(turn={}).endswith("turn.id: Field required")
    assert "chat.surface: Input should be 'web'" in _reason_of(chat={"id": "c1", "surface": SECRET})
    assert "messages.0.role: " in _reason_of(messages=[{"id": "m1", "role": SECRET, "text": SECRET}])
    assert "model.context_window: " in _reason_of(model={"name": "m", "context_window": 0})
    assert "two messages have the same id" in _reason_of(
        messages=[{"id": "m1", "role": "user", "text": SECRET}, {"id": "m1", "role": "user", "text": "x"}]
    )


def test_reasons_name_the_limit() -> None:
    text = "ä" * (limits.MESSAGE_BYTES // 2 + 1)
    assert f"has {limits.MESSAGE_BYTES + 2} bytes, the limit is {limits.MESSAGE_BYTES}" in _reason_of(
        messages=[{"id": "m1", "role": "user", "text": text}]
    )
    assert f"usage.prompt_tokens: Input should be less than or equal to {limits.USED_TOKENS}" in _reason_of(
        usage={"prompt_tokens": 2**70}
    )
    fits = _event(messages=[{"id": "m1", "role": "user", "text": text[:-1]}])
    decode(TURN_EVENT, _record(json.dumps(fits, ensure_ascii=False).encode()))
    assert _reason(b"x" * (limits.EVENT_BYTES + 1)) == (
        f"value: has {limits.EVENT_BYTES + 1} bytes, the limit is {limits.EVENT_BYTES}"
    )
    assert f"at most {limits.ID_CHARACTERS} characters" in _reason_of(id="x" * (limits.ID_CHARACTERS + 1))
    message = {"role": "user", "text": "x"}
    many = [{"id": f"m{n}", **message} for n in range(limits.MESSAGES_PER_TURN + 1)]
    assert f"at most {limits.MESSAGES_PER_TURN} items" in _reason_of(messages=many)


def test_many_problems_are_counted() -> None:
    reason = _reason_of(chat={}, user={}, turn={}, messages=[{"text": SECRET}], model={})
    assert reason.count(": Field required") == 5
    assert reason.endswith("; and 1 more")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        (lambda many: {"messages": [{}] * many}, "messages"),
        (lambda many: {"memory": {"ops": [1] * many}}, "memory.ops"),
        (lambda many: {"chat": {"id": "c1", "characters": [1] * many}}, "chat.characters"),
    ],
)
def test_of_a_list_without_end_the_first_wrong_element_is_named(changes: Any, field: str) -> None:
    # naming all of them would block the worker for longer than its group waits for it
    reason = _reason_of(**changes(100_000))
    assert f"{field}.0" in reason
    assert f"{field}.1" not in reason
    assert "more" not in reason


@pytest.mark.parametrize(
    "changes",
    [
        {"messages": [{"id": "m1", "role": "user", "text": [SECRET]}]},
        {"messages": [{"id": f"m 1 {SECRET}", "role": "user", "text": SECRET}]},
        {"messages": {SECRET: SECRET}},
        {"messages": SECRET},
        {"at": SECRET},
        {"usage": {"prompt_tokens": SECRET}},
        {"user": SECRET},
        {"memory": {"level": SECRET}},
        {"memory": {"ops": [SECRET]}},
        {"memory": {"ops": SECRET}},
        {"chat": {"id": "c1", "characters": [{SECRET: 1}]}},
        {"model": {"name": "", SECRET: SECRET}},
    ],
)
def test_no_reason_quotes_a_text(changes: dict[str, Any]) -> None:
    assert SECRET not in _reason_of(**changes)


def test_unknown_fields_are_ignored() -> None:
    event = decode(TURN_EVENT, _record(json.dumps(_event(later={"x": 1})).encode()))
    assert isinstance(event, TurnRecorded)


@given(st.none() | st.binary(max_size=10))
def test_the_key_is_the_chat(key: bytes | None) -> None:
    if key == b"c1":
        check_key(_record(b"", key), "c1", "chat.id")
    else:
        with pytest.raises(Poison, match=r"key: is not the chat\.id of the event"):
            check_key(_record(b"", key), "c1", "chat.id")


@pytest.mark.parametrize(
    "at", ["1970-01-01T00:00:00+05:00", "9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"]
)
def test_a_time_that_no_store_holds_is_poison(at: str) -> None:
    value = f'{{"type":"chat.deleted","id":"e","at":"{at}","chat":{{"id":"c"}}}}'
    with pytest.raises(Poison, match="at: lies outside the years 1970 to 2199"):
        decode(TURN_EVENT, Record("t", 0, 0, b"c", value.encode(), (), 0))
