"""Plain JSON lines: a message `{role, content}` a line, or a whole conversation `{messages: [...]}` a line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.chat import Surface
from schemas.turns import Role
from services.imports.head import Head
from services.imports.json_stream import NotJson, lines
from services.imports.policy import identifier, usable
from services.imports.port import ChatStart, Item, Options, Unusable
from services.imports.source import Source

name = "jsonl"

_ROLES = {
    "user": Role.user,
    "human": Role.user,
    "assistant": Role.assistant,
    "ai": Role.assistant,
    "bot": Role.assistant,
    "model": Role.assistant,
}
_TIMES = ("at", "timestamp", "created_at", "time", "date")


def claims(head: Head) -> bool:
    """By the fields of a message, alone or in a list."""
    return head.has("role", "content") or head.has("messages.item.role")


def read(source: Source, head: Head, options: Options) -> Iterator[Item]:
    """One chat named by the file, or one for each line, named by the file and the line."""
    file = f"{name}-{identifier(source.path.stem)}"
    conversations: bool | None = None
    for number, line in lines(source):
        place = f"line {number}"
        if isinstance(line, NotJson):
            yield Unusable(place, str(line))
            continue
        shape = _is_conversation(line)
        if shape is None:
            yield Unusable(place, "neither a message nor a list of messages")
            continue
        if conversations is None:
            conversations = shape
            if not conversations:
                yield ChatStart(file, Surface.api)
        if shape is not conversations:
            yield Unusable(place, "of another shape than the first line")
        elif shape:
            yield ChatStart(f"{file}-{number}", Surface.api)
            for index, message in enumerate(line["messages"], 1):
                yield from _message(message, f"{place}, message {index}", f"{number}.{index}")
        else:
            yield from _message(line, place, str(number))


def _is_conversation(line: Any) -> bool | None:
    if not isinstance(line, dict):
        return None
    if isinstance(line.get("messages"), list):
        return True
    return False if "role" in line and "content" in line else None


def _message(message: Any, place: str, key: str) -> Iterator[Item]:
    if not isinstance(message, dict) or "role" not in message:
        yield Unusable(place, "not a message")
        return
    role = _ROLES.get(str(message["role"]).lower())
    if role is None:
        known = message["role"] in ("system", "developer", "tool", "function")
        yield Unusable(place, f"{message['role']} message" if known else "unknown role")
        return
    time = next((message[field] for field in _TIMES if message.get(field) is not None), None)
    author = str(message.get("name") or message.get("author") or "")
    yield from usable(place, key, role, author, _text(message.get("content")), time, message.get("model"))


def _text(content: Any) -> Any:
    """Text parts in a row; images and the like are left out."""
    if not isinstance(content, list):
        return content
    parts = [part.get("text") if isinstance(part, dict) else part for part in content]
    return "\n".join(part for part in parts if isinstance(part, str)) or None
