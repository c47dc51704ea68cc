"""The window in Redis: one script call per event, a batch of them in one round trip."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from pydantic_core import to_json
from redis.asyncio import Redis

from schemas.chat import DEFAULT_LEVEL, LEVELS
from schemas.delivery import Position, Topics
from schemas.turns import FinishedTurn, TurnRegenerated
from services.state import keys
from services.state.agents import WINDOW as AGENT
from services.state.ids import NAMESPACE
from services.state.scripts import Script
from services.tokens.counter import TokenCounter
from services.window.policy import level_of

REFUSED = {
    "partition": "key: the chat's earlier events are on partition {detail}, this one is on {partition}: "
    "two producers hash keys differently (use murmur2)",
    "stale": "offset: {offset} is not after {detail}, which this chat has applied already",
    "turn": "turn.id: a turn with this id was recorded with other messages, model or usage",
    "message": "messages: the id {detail} belongs to a message of an earlier turn",
}
"""Why a turn is not applied, by the status that the script answers."""

SCRIPT = Script(
    "services.window",
    "window.lua",
    {
        "LEVELS": "{"
        + ", ".join(f"{name} = {{{b.tokens}, {b.messages}}}" for name, b in LEVELS.items())
        + "}",
        "NAMESPACE": "".join(f"\\{byte:03d}" for byte in NAMESPACE.bytes),
        "DEFAULT_LEVEL": DEFAULT_LEVEL,
        "CHUNKS_TOPIC": Topics.CHUNKS,
    },
)


class ChunkSize(NamedTuple):
    """A chunk closes at this many messages or at this many tokens, whichever comes first, on whole turns."""

    messages: int = 10
    tokens: int = 2_000


class Reply(NamedTuple):
    """What the script answered: status, a detail of it, and the outbox (field, value, field, value, ...)."""

    status: str
    detail: str
    outbox: Sequence[bytes]

    @classmethod
    def of(cls, raw: Sequence[Any]) -> Reply:
        """From the array that the script returns."""
        detail = raw[1]
        return cls(raw[0].decode(), detail.decode() if isinstance(detail, bytes) else str(detail), raw[2:])


def digest(event: FinishedTurn) -> str:
    """Names a turn's content: its messages, model and usage. 32 hexadecimal digits.

    What regenerates a turn was paid for again, also where it says the same: behind `~` follows the id of the event.
    """
    # the value of an enumeration is written in a third of the time of its member
    messages = [(message.id, message.role.value, message.author, message.text) for message in event.messages]
    model, usage = event.model, event.usage
    about = (
        (model.name, model.context_window, model.tools) if model is not None else None,
        (usage.prompt_tokens, usage.completion_tokens) if usage is not None else None,
    )
    content = blake2b(to_json((messages, about)), digest_size=16).hexdigest()
    return f"{content}~{event.id}" if isinstance(event, TurnRegenerated) else content


def call(
    event: FinishedTurn,
    content: str,
    position: Position,
    at: datetime,
    counter: TokenCounter,
    chunk: ChunkSize,
    previous: int | None = None,
    *,
    generation: int | None = None,
    memory: tuple[str, str] | None = None,
) -> tuple[tuple[str, ...], list[Any]]:
    """Keys and arguments of one script call. `content` is the event's digest.

    `previous` is the offset of the chat's event before this one in the same batch. A pipeline goes on after a call
    that failed; without that event this one is answered with `order`, and does not overtake it. So it is where the chat
    is not of `generation`. `memory` is the outbox field and entry of what the reply did to saved memories.
    """
    chat = event.chat.id
    at_ms = int(at.timestamp() * 1000)
    total = 0
    messages: list[str | bytes] = []
    for message in event.messages:
        tokens = counter(message.text)
        total += tokens
        role = message.role.value
        value = (message.id, role, message.author or role, message.text, tokens, at_ms, event.turn.id)
        messages += (message.id, to_json(value))
    level = level_of(event.chat.surface, event.memory.level)
    model, context = ("", "")
    if event.model is not None:
        model, context = event.model.name, str(event.model.context_window or "")
    arguments = [
        position.epoch,
        position.partition,
        position.offset,
        event.id,
        event.turn.id,
        content,
        at_ms,
        at.isoformat(timespec="milliseconds"),
        level or "",
        model,
        context,
        event.chat.model_dump_json(exclude_defaults=True),
        event.user.id if event.user else "",
        chat,
        chunk.messages,
        chunk.tokens,
        len(event.messages),
        total,
        event.messages[0].id,
        event.messages[-1].id,
        "" if previous is None else previous,
        "" if generation is None else generation,
        *(memory or ("", "")),
        *messages,
    ]
    return _keys(chat), arguments


@lru_cache(maxsize=16_384)
def _keys(chat: str) -> tuple[str, ...]:
    k = keys.ChatKeys.of(chat)
    return (
        k.window,
        k.messages,
        k.turns,
        k.message_ids,
        k.events,
        k.live,
        k.pending,
        k.chunks,
        keys.outbox(chat, AGENT),
        k.turn_order,
        k.memory_users,
    )


async def apply(redis: Redis, calls: Sequence[tuple[tuple[str, ...], list[Any]]]) -> list[Reply]:
    """Run a batch of calls in order, in one round trip."""
    return [Reply.of(raw) for raw in await SCRIPT.run_all(redis, calls)]
