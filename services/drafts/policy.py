"""What a draft may be, whether it fits, and from which chats anything is drafted (M3, M7, O1, O3, O4). Pure."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from schemas import limits
from schemas.chat import ChatKind, ChatRef
from schemas.memories import character_of
from services.drafts.port import Draft
from services.summaries import text as texts
from services.summaries.port import SourceMessage


class Misfit(NamedTuple):
    """Why a draft cannot be saved as it is: the field, what is wrong with it, and the limit."""

    field: str
    message: str
    limit: int


def tidy(drafts: Iterable[Draft]) -> tuple[Draft, ...]:
    """The first five that say something, each on one line, within the limit and once."""
    found: dict[str, Draft] = {}
    for draft in drafts:
        text = shortened(texts.one_line(draft.text))
        if text:
            found.setdefault(text.casefold(), draft._replace(text=text))
    return tuple(found.values())[: limits.DRAFTS]


def shortened(text: str) -> str:
    """The beginning of a text that is too long for a memory."""
    if len(text) <= limits.MEMORY_CHARACTERS:
        return text
    room = limits.MEMORY_CHARACTERS - 1
    return texts.shorten(text, room) or f"{text[:room]}…"


def originals(messages: Iterable[SourceMessage]) -> tuple[Draft, ...]:
    """The messages themselves, however long; without those that are empty."""
    return tuple(Draft(message.text, (message.id,)) for message in messages if message.text.strip())


def misfits(drafts: Sequence[str], pins: int) -> list[list[Misfit]]:
    """For each text, saved in this order as a pin into a scope with `pins` of them: why it does not fit."""
    free = max(0, limits.MEMORIES_PINNED - pins)
    found = []
    for text in drafts:
        wrong = []
        if not text.strip():
            wrong.append(Misfit("text", "is empty", 1))
        if (size := len(text)) > limits.MEMORY_CHARACTERS:
            limit = limits.MEMORY_CHARACTERS
            wrong.append(Misfit("text", f"has {size} characters, the limit is {limit}", limit))
        if not wrong and free == 0:
            limit = limits.MEMORIES_PINNED
            left = limit - pins
            told = f"there is room for {left} more of {limit} pins" if left > 0 else f"all {limit} are taken"
            wrong.append(Misfit("pinned", f"{told}; unpin or delete one first", limit))
        if not wrong:
            free -= 1
        found.append(wrong)
    return found


def refusal(chat: ChatRef, owner: str, scope: str, off: Container[str]) -> str | None:
    """Why nothing is saved from a chat into a scope; None: it may be. `off`: characters not learned from.

    In a group one character that is learned from is enough, as it is for what the characters save themselves.
    """
    if not owner:
        return "nothing is saved from a chat of somebody signed out"
    if chat.kind is ChatKind.bounty:
        return "nothing is saved from a bounty chat"
    target = character_of(scope)
    if target is not None and target in off:
        return f"learning is off for the character {target}"
    if chat.characters and all(character in off for character in chat.characters):
        return f"learning is off for the character {chat.characters[0]}"
    return None
