"""The rules of the window, without any store. The script does the same inside Redis; a test holds both together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schemas.chat import LEVELS, ChatKind, Level, Surface
from schemas.turns import FinishedTurn

CONTEXT_SHARE = 4
"""A window takes at most one part in four of the model's context window (W1)."""


class Bounds(NamedTuple):
    """What a window may hold: tokens of the messages' texts, and messages."""

    tokens: int
    messages: int


class Turn(NamedTuple):
    """A turn as the window sees it."""

    messages: int
    tokens: int


def bounds(level: Level, context_window: int | None) -> Bounds:
    """The smallest bound wins; a large model does not make the window larger (W1, W3)."""
    tokens, messages, _ = LEVELS[level]
    if context_window is not None:
        tokens = min(tokens, context_window // CONTEXT_SHARE)
    return Bounds(tokens, messages)


def level_of(surface: Surface, named: Level | None) -> Level | None:
    """The level that an event asks for; None keeps the chat's own. Discord and Telegram are always balanced (W2)."""
    if surface in (Surface.discord, Surface.telegram):
        return Level.balanced
    return named


def leaving(live: Sequence[Turn], limit: Bounds) -> int:
    """How many of the oldest turns leave. The newest turn stays, even alone over the bound (W4)."""
    messages = sum(turn.messages for turn in live)
    tokens = sum(turn.tokens for turn in live)
    gone = 0
    while gone < len(live) - 1 and (messages > limit.messages or tokens > limit.tokens):
        messages -= live[gone].messages
        tokens -= live[gone].tokens
        gone += 1
    return gone


def chunks(pending: Sequence[Turn], messages: int, tokens: int) -> list[int]:
    """Where chunks close: numbers of turns, each a chunk, oldest first; what is left waits for more (S1)."""
    sizes: list[int] = []
    size = message_sum = token_sum = 0
    for turn in pending:
        size += 1
        message_sum += turn.messages
        token_sum += turn.tokens
        if message_sum >= messages or token_sum >= tokens:
            sizes.append(size)
            size = message_sum = token_sum = 0
    return sizes


def may_save(event: FinishedTurn) -> bool:
    """Whether a reply may have changed saved memories: not signed out (O4), not in a bounty chat (O3), not by a model
    without tools (O2)."""
    tools = event.model is None or event.model.tools
    return event.user is not None and event.chat.kind is not ChatKind.bounty and tools
