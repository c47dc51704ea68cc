"""What a reader of a foreign format gives: chats, their messages in order, and what it could not use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from schemas.chat import Surface
from schemas.turns import Role
from services.imports.head import Head
from services.imports.source import Source


class ChatStart(NamedTuple):
    """All messages up to the next one belong to this chat. `id` is the same at every reading of the export."""

    id: str
    surface: Surface
    characters: tuple[str, ...] = ()


class SourceMessage(NamedTuple):
    """A usable message of a user or an assistant. `key` is its place in the chat: the source's own id, or a line."""

    key: str
    role: Role
    author: str
    text: str
    at: datetime | None
    model: str | None = None


class Unusable(NamedTuple):
    """Something that is not imported, where it stands (`line 12`, `message 4711`), and why; never its text."""

    place: str
    reason: str


Item = ChatStart | SourceMessage | Unusable


@dataclass(frozen=True, slots=True)
class Options:
    """`me`: names or ids of who is the user, where the export does not tell. `user`: id for the events; None is
    someone signed out. `chat`: id of the chat in place of the derived one, for an export of one chat."""

    me: tuple[str, ...] = ()
    user: str | None = None
    chat: str | None = None


class ImportRefused(Exception):
    """Nothing can be imported as asked; the message tells what to do."""


class WhoIsTheUser(ImportRefused):
    """The export does not tell which author is the user."""

    def __init__(self, authors: dict[str, int]) -> None:
        self.authors = authors
        known = sorted(authors.items(), key=lambda item: (-item[1], item[0]))[:20]
        listed = ", ".join(f"{name} ({count} messages)" for name, count in known) or "none"
        super().__init__(f"which author is the user? Name one with --me NAME; authors: {listed}")


class Format(Protocol):
    """One foreign format."""

    @property
    def name(self) -> str:
        """As shown and as used in ids."""

    def claims(self, head: Head) -> bool:
        """Whether a file that begins like this is in this format. Looks at the content, never at the name."""

    def read(self, source: Source, head: Head, options: Options) -> Iterator[Item]:
        """Everything in the file, in order, in bounded memory.

        Raises ImportRefused, and ijson.JSONError where a JSON document breaks off.
        """
