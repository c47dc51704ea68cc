"""SillyTavern: a chat as JSON lines, the first one about the chat, then a message a line; `mes` is the chosen swipe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from schemas.chat import Surface
from schemas.turns import Role
from services.imports.head import Head
from services.imports.json_stream import NotJson, lines
from services.imports.policy import clean, identifier, usable
from services.imports.port import ChatStart, Item, Options, Unusable
from services.imports.source import Source
from services.state import ids

name = "sillytavern"

_UNUSED = ("", "unused")
"""What newer versions write for names that are told elsewhere, and groups for the character."""


def claims(head: Head) -> bool:
    """By the header, or by the fields of a message where there is none."""
    return head.has("chat_metadata") or head.has("user_name", "character_name") or head.has("mes", "is_user")


def read(source: Source, head: Head, options: Options) -> Iterator[Item]:
    """One chat."""
    begun = False
    for number, line in lines(source):
        place = f"line {number}"
        if isinstance(line, NotJson):
            yield Unusable(place, str(line))
            continue
        is_message = isinstance(line, dict) and "mes" in line
        if not begun:
            yield _chat(line if isinstance(line, dict) and not is_message else {}, source)
            begun = True
            if isinstance(line, dict) and not is_message:
                continue
        if is_message:
            yield from _message(line, place, number)
        else:
            yield Unusable(place, "neither a message nor the chat's first line")


def _chat(header: dict[str, Any], source: Source) -> ChatStart:
    metadata = header.get("chat_metadata")
    integrity = metadata.get("integrity") if isinstance(metadata, dict) else None
    parts = [clean(str(header.get(field) or "")) for field in ("user_name", "character_name", "create_date")]
    if isinstance(integrity, str) and integrity:
        chat = identifier(integrity)
    elif any(part not in _UNUSED for part in parts):
        chat = ids.derive("import-chat", name, *parts)
    else:
        chat = identifier(source.path.stem)
    character = parts[1]
    return ChatStart(f"{name}-{chat}", Surface.web, () if character in _UNUSED else (identifier(character),))


def _message(line: dict[str, Any], place: str, number: int) -> Iterator[Item]:
    if line.get("is_system"):
        yield Unusable(place, "hidden or system message")
        return
    extra = line.get("extra")
    yield from usable(
        place,
        str(number),
        Role.user if line.get("is_user") else Role.assistant,
        str(line.get("name") or ""),
        line["mes"],
        line.get("send_date"),
        extra.get("model") if isinstance(extra, dict) else None,
    )
