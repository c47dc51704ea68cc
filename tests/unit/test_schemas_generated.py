"""The committed schemas are those of the models, and a writer who follows them is understood."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, FormatChecker
from pydantic import TypeAdapter, ValidationError

from schemas import limits
from schemas.generate import documents
from schemas.generate.__main__ import FOLDER, PAGE
from schemas.generate.asyncapi import PARTITIONS, asyncapi
from schemas.generate.catalogue import EVENTS, TOPICS, TURN_EVENTS, Event
from schemas.generate.tables import inserted
from schemas.turns import TURN_EVENT

TOPICS_FILE = Path(__file__).parents[2] / "infra" / "kafka" / "topics.yaml"
NAMES = [event.type for event in EVENTS]


FORMATS = FormatChecker(formats=())


@FORMATS.checks("date-time", raises=ValueError)
def _date_time(value: object) -> bool:
    return not isinstance(value, str) or datetime.fromisoformat(value).tzinfo is not None


def published(name: str) -> Any:
    return json.loads((FOLDER / name).read_text("utf-8"))


def validator(name: str) -> Draft202012Validator:
    schema = published(f"{name}.schema.json")
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema, format_checker=FORMATS)


def test_what_is_committed_is_what_the_models_say() -> None:
    committed = {
        path.relative_to(FOLDER).as_posix(): path.read_text("utf-8") for path in FOLDER.rglob("*.json")
    }
    assert committed == documents(), "run `make schemas`"
    assert PAGE.read_text("utf-8") == inserted(PAGE.read_text("utf-8")), "run `make schemas`"


def test_the_same_models_give_the_same_bytes() -> None:
    assert documents() == documents()


@pytest.mark.rule("F1")
@pytest.mark.parametrize("event", EVENTS, ids=NAMES)
def test_examples_satisfy_schema_and_model(event: Event) -> None:
    example = published(f"examples/{event.type}.json")
    validator(event.type).validate(example)
    assert event.model.model_validate_json(json.dumps(example)) == event.example


@pytest.mark.rule("F1")
def test_the_union_takes_every_turn_event_and_nothing_without_type() -> None:
    union = validator("chat.turns.v1")
    for event in TURN_EVENTS:
        example = published(f"examples/{event.type}.json")
        union.validate(example)
        assert TURN_EVENT.validate_python(example) == event.example
        del example["type"]
        assert not union.is_valid(example)
        with pytest.raises(ValidationError):
            TURN_EVENT.validate_python(example)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths to every value inside."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


DROPPED = object()
REPLACEMENTS = (
    DROPPED,
    None,
    "",
    "a b",
    "{x}",
    "x" * (limits.ID_CHARACTERS + 1),
    "ไม่",
    "web",
    "2026-11-30T10:00:00+07:00",
    "yesterday",
    -1,
    0,
    1.5,
    10**9,
    True,
    [],
    ["a", "b"],
    {},
    {"id": "x"},
)


def changed(example: Any, path: tuple[Any, ...], replacement: Any) -> Any:
    copied = copy.deepcopy(example)
    *parents, last = path
    inner = copied
    for key in parents:
        inner = inner[key]
    if replacement is DROPPED:
        del inner[last]
    else:
        inner[last] = replacement
    return copied


@pytest.mark.rule("F1")
@pytest.mark.parametrize("event", EVENTS, ids=NAMES)
def test_what_satisfies_the_schema_is_accepted(event: Event) -> None:
    """In the other direction the models are laxer in places: a number in a string is taken for the number."""
    schema = validator(event.type)
    adapter: TypeAdapter[Any] = TypeAdapter(event.model)
    example = published(f"examples/{event.type}.json")
    accepted = refused = 0
    for path in places(example):
        for replacement in REPLACEMENTS:
            variant = changed(example, path, replacement)
            if schema.is_valid(variant):
                adapter.validate_json(json.dumps(variant))
                accepted += 1
            else:
                refused += 1
    assert accepted > 10
    assert refused > 50


def test_unknown_fields_are_allowed() -> None:
    example = {**published("examples/turn.recorded.json"), "colour": "blue"}
    validator("turn.recorded").validate(example)
    TURN_EVENT.validate_python(example)


class TestAsyncApi:
    """Structure as AsyncAPI 3.0.0 asks for it."""

    document: Any = json.loads(json.dumps(asyncapi()))

    def resolve(self, reference: str) -> Any:
        assert reference.startswith("#/")
        found = self.document
        for part in reference[2:].split("/"):
            found = found[part.replace("~1", "/").replace("~0", "~")]
        return found

    def references(self, value: Any) -> Iterator[str]:
        for path in places(value):
            if path[-1] == "$ref":
                inner = value
                for key in path:
                    inner = inner[key]
                yield inner

    def test_root(self) -> None:
        assert self.document["asyncapi"] == "3.0.0"
        assert {"title", "version"} <= self.document["info"].keys()
        assert set(self.document) == {
            "asyncapi",
            "info",
            "defaultContentType",
            "channels",
            "operations",
            "components",
        }

    def test_every_reference_leads_somewhere(self) -> None:
        references = set(self.references(self.document))
        assert len(references) > 30
        for reference in references:
            assert isinstance(self.resolve(reference), dict)

    def test_operations_act_on_channels(self) -> None:
        used = set()
        for operation in self.document["operations"].values():
            assert operation["action"] in ("send", "receive")
            assert set(operation["channel"]) == {"$ref"}
            assert operation["channel"]["$ref"].startswith("#/channels/")
            used.add(operation["channel"]["$ref"].removeprefix("#/channels/"))
        assert used == set(self.document["channels"])

    def test_channels_are_the_topics(self) -> None:
        table = yaml.safe_load(TOPICS_FILE.read_text("utf-8"))
        assert table["partitions"] == PARTITIONS
        wanted = set(table["topics"]) | {
            f"{name}.{topic['agent']}.dlq" for name, topic in table["topics"].items() if "agent" in topic
        }
        channels = self.document["channels"].values()
        assert {channel["address"] for channel in channels} == wanted
        for channel in channels:
            assert channel["bindings"]["kafka"]["partitions"] == PARTITIONS

    def test_messages_have_payload_key_headers_and_valid_examples(self) -> None:
        messages = self.document["components"]["messages"]
        assert set(messages) == {*NAMES, "deadLetter"}
        for topic in TOPICS:
            for event in topic.events:
                message = messages[event.type]
                assert message["bindings"]["kafka"]["key"]["type"] == "string"
                assert message["headers"]["type"] == "object"
                (example,) = message["examples"]
                schema = {**message["payload"], "components": self.document["components"]}
                Draft202012Validator(schema).validate(example["payload"])
