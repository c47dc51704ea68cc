"""DiscordChatExporter's JSON: one channel.

Who the user is: `--me`; else everyone who is not a bot. A channel without a bot does not tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from schemas.chat import Surface
from schemas.turns import Role
from services.imports.head import Head
from services.imports.json_stream import START, walk
from services.imports.policy import identifier, usable
from services.imports.port import ChatStart, Item, Options, Unusable, WhoIsTheUser
from services.imports.source import Source

name = "discord"

_MESSAGE = "messages.item"
_SPOKEN = ("Default", "Reply", "ChatInputCommand", "ContextMenuCommand", "20", "23")
"""Types of messages that someone wrote; the others tell of pins, calls, members and so on."""


def claims(head: Head) -> bool:
    """By guild and channel."""
    return head.has("guild", "channel.id")


def read(source: Source, head: Head, options: Options) -> Iterator[Item]:
    """The channel's messages."""
    me = set(options.me)
    if not me:
        _look_for_a_bot(source)
    begun, channel = False, ""
    for path, value in walk(source, (_MESSAGE,)):
        if path == "channel.id":
            channel = str(value)
        elif path == _MESSAGE and value is not START:
            if not begun:
                yield ChatStart(f"{name}-{identifier(channel)}", Surface.discord)
                begun = True
            yield from _message(value, me)


def _look_for_a_bot(source: Source) -> None:
    """Raises WhoIsTheUser where no author is a bot. Leaves `source` at the start."""
    people: Counter[str] = Counter()
    for path, value in walk(source, (_MESSAGE,)):
        author = value.get("author") if path == _MESSAGE and isinstance(value, dict) else None
        if isinstance(author, dict):
            if author.get("isBot"):
                break
            people[str(author.get("name") or author.get("id"))] += 1
    else:
        if people:
            raise WhoIsTheUser(dict(people))
    source.rewind()


def _message(message: Any, me: set[str]) -> Iterator[Item]:
    author = message.get("author") if isinstance(message, dict) else None
    if not isinstance(author, dict) or "id" not in message:
        yield Unusable("a message without id or author", "not a message")
        return
    key = str(message["id"])
    place = f"message {identifier(key)}"
    if str(message.get("type")) not in _SPOKEN:
        yield Unusable(place, f"service message ({identifier(str(message.get('type')))})")
        return
    names = {str(author.get(field)) for field in ("id", "name", "nickname")}
    is_user = bool(names & me) if me else not author.get("isBot")
    text = message.get("content")
    if text == "" and (message.get("attachments") or message.get("embeds") or message.get("stickers")):
        yield Unusable(place, "an attachment without text")
        return
    yield from usable(
        place,
        key,
        Role.user if is_user else Role.assistant,
        str(author.get("nickname") or author.get("name") or ""),
        text,
        message.get("timestamp"),
    )
