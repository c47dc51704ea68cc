"""The ChatGPT export: conversations as trees of messages. The branch that was shown last is imported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ijson

from schemas.chat import Surface
from schemas.turns import Role
from services.imports.head import Head
from services.imports.policy import clean, identifier, usable
from services.imports.port import ChatStart, Item, Options, Unusable
from services.imports.source import Source
from services.state import ids

name = "chatgpt"

_PATHS = ("item", "conversations.item", "")
"""Where conversations are: a list of them, a list in an object, or one alone."""
_ROLES = {"user": Role.user, "assistant": Role.assistant}
_TEXTS = ("text", "multimodal_text", "code")


def claims(head: Head) -> bool:
    """By the tree of messages in a conversation."""
    return _path(head) is not None


def _path(head: Head) -> str | None:
    for path in _PATHS:
        if head.has(f"{path}.mapping" if path else "mapping"):
            return path
    return None


def read(source: Source, head: Head, options: Options) -> Iterator[Item]:
    """One chat per conversation; one conversation at a time is in memory."""
    path = _path(head) or ""
    for number, conversation in enumerate(ijson.items(source, path, use_float=True), 1):
        place = f"conversation {number}"
        mapping = conversation.get("mapping") if isinstance(conversation, dict) else None
        if not isinstance(mapping, dict):
            yield Unusable(place, "a conversation without messages")
            continue
        yield ChatStart(f"{name}-{_identity(conversation)}", Surface.web)
        nodes = _branch(mapping, conversation.get("current_node"))
        if not nodes:
            yield Unusable(place, "a conversation without a current branch")
        for node in nodes:
            message = mapping[node].get("message")
            if isinstance(message, dict):
                yield from _message(message, node, f"{place}, message {identifier(node)}")


def _identity(conversation: dict[str, Any]) -> str:
    own = conversation.get("conversation_id") or conversation.get("id")
    if isinstance(own, str) and own:
        return identifier(own)
    parts = (clean(str(conversation.get(part))) for part in ("create_time", "title"))
    return ids.derive("import-chat", name, *parts)


def _branch(mapping: dict[str, Any], current: Any) -> list[str]:
    """Nodes from the root to the current one; where that is missing, to the node without children that is last in the file."""
    if current not in mapping:
        leaves = [key for key, node in mapping.items() if isinstance(node, dict) and not node.get("children")]
        current = leaves[-1] if leaves else None
    branch: list[str] = []
    seen: set[str] = set()
    while isinstance(current, str) and current not in seen and isinstance(mapping.get(current), dict):
        seen.add(current)
        branch.append(current)
        current = mapping[current].get("parent")
    return branch[::-1]


def _message(message: dict[str, Any], node: str, place: str) -> Iterator[Item]:
    author, content = (message.get(field) or {} for field in ("author", "content"))
    metadata = message.get("metadata") or {}
    if not all(isinstance(part, dict) for part in (author, content, metadata)):
        yield Unusable(place, "not a message")
        return
    said = str(author.get("role"))
    role = _ROLES.get(said)
    kind = content.get("content_type")
    if role is None:
        yield Unusable(place, f"{said} message" if said in ("system", "tool") else "unknown role")
    elif metadata.get("is_visually_hidden_from_conversation"):
        yield Unusable(place, "hidden message")
    elif message.get("recipient") not in (None, "all"):
        yield Unusable(place, "addressed to a tool")
    elif kind not in _TEXTS:
        yield Unusable(place, f"content of type {identifier(str(kind))}")
    else:
        speaker = str(author.get("name") or "")
        time, model = message.get("create_time"), metadata.get("model_slug")
        yield from usable(place, node, role, speaker, _text(content), time, model)


def _text(content: dict[str, Any]) -> str:
    """Text and transcribed speech; images and files are left out."""
    if isinstance(content.get("text"), str):
        return str(content["text"])
    parts = content.get("parts")
    texts = [
        part.get("text") if isinstance(part, dict) else part
        for part in (parts if isinstance(parts, list) else ())
    ]
    return "\n".join(text for text in texts if isinstance(text, str) and text)
