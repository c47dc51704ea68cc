"""The AsyncAPI 3 document: topics as channels, with keys, headers and examples."""

from __future__ import annotations

from typing import Any

from schemas.generate.catalogue import EVENTS, TOPICS, Event, Topic
from schemas.generate.json_schema import definitions

ASYNCAPI = "3.0.0"
BINDING = "0.5.0"
VERSION = "1.0.0"
"""Of the contract: grows with what an event may say; a breaking change is a new topic version instead."""
PARTITIONS = 12

_REASONS = {
    "afterturn-kind": "`poison`: wrong, and wrong again each time. `parked`: something outside did not work for too long. "
    "`unexpected`: a fault of Afterturn.",
    "afterturn-reason": "What is wrong, by field, with the limit. Never quotes the text of a chat.",
    "afterturn-agent": "The agent that could not use the record.",
    "afterturn-topic": "Where the record was read.",
    "afterturn-partition": "Its partition, in decimal digits.",
    "afterturn-offset": "Its offset, in decimal digits.",
    "afterturn-at": "When it was given up, RFC 3339.",
}


def channel_name(topic: str) -> str:
    """`chat.turns.v1` -> `chatTurns`."""
    first, *others = topic.rsplit(".v", 1)[0].split(".")
    return first + "".join(map(str.capitalize, others))


def asyncapi() -> dict[str, Any]:
    """The whole document; every `$ref` points into it."""
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    for topic in TOPICS:
        name = channel_name(topic.name)
        channels[name] = _channel(topic)
        title = name[0].upper() + name[1:]
        if topic.agent != "window":
            operations[f"send{title}"] = {
                "action": "send",
                "channel": {"$ref": f"#/channels/{name}"},
                "summary": f"Written by {topic.written_by}.",
            }
        if not topic.agent:
            continue
        dead = f"{name}DeadLetters"
        channels[dead] = _dead_letters(topic)
        operations[f"receive{title}"] = {
            "action": "receive",
            "channel": {"$ref": f"#/channels/{name}"},
            "summary": f"Read by the {topic.agent} agent; written by {topic.written_by}.",
        }
        operations[f"send{title}DeadLetters"] = {
            "action": "send",
            "channel": {"$ref": f"#/channels/{dead}"},
            "summary": "The record as it came, its bytes untouched, with the reason in its headers.",
        }
    return {
        "asyncapi": ASYNCAPI,
        "info": {
            "title": "Afterturn",
            "version": VERSION,
            "description": "Finished turns of a chat in; chunks, summaries, saved memories and usage out. "
            "Keys are UTF-8 and hashed with murmur2. Readers ignore unknown fields.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {
                **{event.type: _message(event, topic) for topic in TOPICS for event in topic.events},
                "deadLetter": {
                    "name": "deadLetter",
                    "title": "A record that could not be used",
                    "headers": _headers(_REASONS, required=True),
                    "payload": {
                        "description": "The bytes of the record as they came; possibly no JSON at all."
                    },
                },
            },
            "schemas": definitions([event.model for event in EVENTS], "#/components/schemas/{model}"),
        },
    }


def _kafka(topic: str) -> dict[str, Any]:
    return {"kafka": {"topic": topic, "partitions": PARTITIONS, "bindingVersion": BINDING}}


def _channel(topic: Topic) -> dict[str, Any]:
    return {
        "address": topic.name,
        "title": topic.title,
        "description": topic.description,
        "messages": {event.type: {"$ref": f"#/components/messages/{event.type}"} for event in topic.events},
        "bindings": _kafka(topic.name),
    }


def _dead_letters(topic: Topic) -> dict[str, Any]:
    address = f"{topic.name}.{topic.agent}.dlq"
    return {
        "address": address,
        "title": f"{topic.title}: dead letters",
        "description": f"Records of `{topic.name}` that the {topic.agent} agent could not use.",
        "messages": {"deadLetter": {"$ref": "#/components/messages/deadLetter"}},
        "bindings": _kafka(address),
    }


def _headers(meanings: dict[str, str], *, required: bool) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: {"type": "string", "description": text} for name, text in meanings.items()},
    }
    if required:
        schema["required"] = sorted(meanings)
    return schema


def _message(event: Event, topic: Topic) -> dict[str, Any]:
    summary = (event.model.__doc__ or "").strip().splitlines()[0]
    return {
        "name": event.type,
        "title": event.model.__name__,
        "summary": summary,
        "contentType": "application/json",
        "headers": _headers(
            {"traceparent": "W3C trace context; optional, not interpreted."},
            required=False,
        ),
        "payload": {"$ref": f"#/components/schemas/{event.model.__name__}"},
        "bindings": {
            "kafka": {"key": {"type": "string", "description": topic.key}, "bindingVersion": BINDING}
        },
        "examples": [{"name": event.type, "payload": event.value}],
    }
