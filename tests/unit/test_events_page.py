"""docs/events.md tells the truth where it quotes."""

from __future__ import annotations

import json
import re

import pytest

from schemas import limits
from schemas.delivery import Topics
from schemas.generate.__main__ import PAGE
from schemas.generate.asyncapi import asyncapi
from schemas.generate.catalogue import TURN_EVENTS
from schemas.turns import TURN_EVENT, TurnRecorded

TEXT = PAGE.read_text("utf-8")


@pytest.mark.rule("F1")
def test_the_smallest_event_is_one_and_is_the_smallest() -> None:
    block, *_ = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    value = json.loads(block)
    event = TURN_EVENT.validate_json(block)
    assert isinstance(event, TurnRecorded)
    required = {name for name, field in TurnRecorded.model_fields.items() if field.is_required()}
    assert set(value) == required | {"type"}


def test_every_example_is_an_event() -> None:
    blocks = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)
    types = [TURN_EVENT.validate_json(block).type for block in blocks]
    assert sorted(types) == sorted(event.type for event in TURN_EVENTS)


def test_limits_are_those_of_the_models() -> None:
    for limit in (limits.EVENT_BYTES, limits.MESSAGE_BYTES):
        assert f"{limit:,} bytes" in TEXT
    assert f"up to {limits.BATCH_EVENTS}" in TEXT


def test_every_event_and_every_header_is_named() -> None:
    for event in TURN_EVENTS:
        assert f"`{event.type}`" in TEXT
    for header in asyncapi()["components"]["messages"]["deadLetter"]["headers"]["required"]:
        assert f"`{header}`" in TEXT
    assert f"`{Topics.TURNS}.window.dlq`" in TEXT
