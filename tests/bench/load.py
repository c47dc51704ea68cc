"""The turns that the benchmarks send."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from schemas.delivery import Outgoing, Topics
from schemas.turns import TURN_EVENT, TurnRecorded
from streams.runtime.publisher import Publisher

CHATS = 500
SIZES = (300, 900)
"""Characters of the two messages of a turn."""
CHARACTERS = ("mira",)
"""Who answers in a chat, Mira always among them."""

_SENTENCES = (
    "The harbour was quiet when Mira counted the lamps again and wrote the sum into the book.",
    "I promised to bring the brass key on Friday, and the red ledger as well.",
    "She would not say who had paid 340 crowns for the map, only that it was gone.",
    "Rain went about its business over the roofs of the old town.",
    "If the ferry leaves before six, wait for me under the clock at Pier 9.",
    "No, his name is Anselm, not Anton; he has been the pilot since the flood.",
    "The kettle sang, and nobody got up.",
    "Two of the letters were from Lisbon, the third had no stamp at all.",
    "Can you read the number on the hull from here?",
    "He laid the compass on the table and turned the glass towards the window.",
    "They had agreed on half, but half of what was never written down.",
    "Tomorrow we ask the harbour master about the second boat.",
)


def text(number: int, characters: int) -> str:
    """Prose of this length, another one for each number."""
    parts, size, at = [f"{number}."], 0, number * 7
    while size < characters:
        parts.append(_SENTENCES[at % len(_SENTENCES)])
        size += len(parts[-1]) + 1
        at += 1 + number % 5
    return " ".join(parts)[:characters]


def event(
    number: int,
    chat: str,
    sizes: Sequence[int] = SIZES,
    *,
    usage: bool = False,
    user: str | None = None,
    characters: Sequence[str] = CHARACTERS,
) -> bytes:
    """A recorded turn with a message of the user and one of the character, as a frontend writes it."""
    turn: dict[str, Any] = {
        "type": "turn.recorded",
        "id": f"e-{number}",
        "at": "2026-06-01T12:00:00Z",
        "chat": {"id": chat, "surface": "web", "characters": list(characters)},
        "user": {"id": user or f"user-of-{chat}"},
        "turn": {"id": f"t-{number}"},
        "messages": [
            {"id": f"m-{number}-u", "role": "user", "author": "user", "text": text(2 * number, sizes[0])},
            {
                "id": f"m-{number}-a",
                "role": "assistant",
                "author": "mira",
                "text": text(2 * number + 1, sizes[1]),
            },
        ],
        "model": {"name": "deepseek-v3.1", "context_window": 65536},
    }
    if usage:
        turn["usage"] = {"prompt_tokens": 8_000 + number % 1_000, "completion_tokens": 250}
    return json.dumps(turn).encode()


def record(number: int, chats: int = CHATS, sizes: Sequence[int] = SIZES, *, usage: bool = False) -> Outgoing:
    """Turn `number` of a load over so many chats, which take turns."""
    chat = f"chat-{number % chats}"
    return Outgoing(Topics.TURNS, chat.encode(), event(number, chat, sizes, usage=usage))


def decoded(number: int, chat: str, characters: Sequence[str] = CHARACTERS) -> TurnRecorded:
    """The same as the window's service gets it."""
    turn = TURN_EVENT.validate_json(event(number, chat, characters=characters))
    assert isinstance(turn, TurnRecorded)
    return turn


async def publish(
    publisher: Publisher,
    numbers: range,
    sizes: Sequence[int] = SIZES,
    *,
    chats: int = CHATS,
    usage: bool = False,
) -> None:
    """Put turns into the topic, confirmed on return."""
    for at in range(0, len(numbers), 1_000):
        await publisher.publish(
            [record(each, chats, sizes, usage=usage) for each in numbers[at : at + 1_000]]
        )
