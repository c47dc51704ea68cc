"""Telegram Desktop's export: one chat, or all of them in `chats.list`.

Who the user is: `--me`; else the owner that a full export names; else, in a chat of two, the one who is not the
other one. A group alone does not tell.
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

name = "telegram"

_ROOTS = ("chats.list.item", "left_chats.list.item", "")
_OF_TWO = ("personal_chat", "bot_chat")
_ALONE = ("saved_messages", "public_channel", "private_channel")


def claims(head: Head) -> bool:
    """By the list of chats, or the fields of a chat."""
    full = head.has("personal_information") or head.has("chats.list")
    return full or (head.has("type", "id", "messages") and not head.has("messages.item.role"))


def read(source: Source, head: Head, options: Options) -> Iterator[Item]:
    """One chat after the other."""
    messages = {f"{root}.messages.item".lstrip("."): root for root in _ROOTS}
    owner: str | None = None
    chat: dict[str, Any] = {}
    people: _People | None = None
    for path, value in walk(source, messages):
        if value is START:
            if path in _ROOTS:
                if people is not None:
                    people.settle()
                chat, people = {}, None
        elif path == "personal_information.user_id":
            owner = f"user{value}"
        elif path in messages:
            if people is None:
                place = f"chat {identifier(str(chat.get('id')))}"
                if chat.get("type") in _ALONE:
                    yield Unusable(place, f"a {chat['type']} is no conversation")
                else:
                    yield ChatStart(f"{name}-{identifier(str(chat.get('id')))}", Surface.telegram)
                people = _People(chat, options.me, owner)
            if chat.get("type") not in _ALONE:
                yield from _message(value, people)
        else:
            root, _, field = path.rpartition(".")
            if root in _ROOTS and field in ("id", "type"):
                chat[field] = value
    if people is not None:
        people.settle()


class _People:
    """Who speaks for whom in one chat."""

    def __init__(self, chat: dict[str, Any], me: tuple[str, ...], owner: str | None) -> None:
        self._me = set(me) or ({owner} if owner else set())
        of_two = chat.get("type") in _OF_TWO
        self._other = f"user{chat.get('id')}" if of_two and not me else None
        self._unknown: Counter[str] | None = None
        if not self._me and not self._other and chat.get("type") not in _ALONE:
            self._unknown = Counter()

    def role(self, author: str, author_id: str) -> Role | None:
        """None while it is not known who the user is."""
        if self._unknown is not None:
            self._unknown[author or author_id] += 1
            return None
        if self._other is not None:
            return Role.assistant if author_id == self._other else Role.user
        mine = {author, author_id, author_id.removeprefix("user")} & self._me
        return Role.user if mine else Role.assistant

    def settle(self) -> None:
        """At the end of the chat. Raises WhoIsTheUser where that was needed."""
        if self._unknown:
            raise WhoIsTheUser(dict(self._unknown))


def _message(message: Any, people: _People) -> Iterator[Item]:
    if not isinstance(message, dict) or "id" not in message:
        yield Unusable("a message without id", "not a message")
        return
    key = str(message["id"])
    place = f"message {identifier(key)}"
    if message.get("type") != "message":
        yield Unusable(place, "service message")
        return
    author = str(message.get("from") or "")
    role = people.role(author, str(message.get("from_id") or ""))
    if role is None:
        return
    time = message.get("date_unixtime") or message.get("date")
    text = _text(message.get("text"))
    if text == "" and ("media_type" in message or "photo" in message or "file" in message):
        yield Unusable(place, "an attachment without text")
        return
    yield from usable(place, key, role, author, text, time)


def _text(text: Any) -> Any:
    """A string, or pieces of which some are marked as links, bold and so on."""
    if not isinstance(text, list):
        return text
    pieces = [piece.get("text") if isinstance(piece, dict) else piece for piece in text]
    return "".join(piece for piece in pieces if isinstance(piece, str))
