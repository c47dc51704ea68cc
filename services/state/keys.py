"""Names of the Redis keys. All keys of a chat share one hash slot, so that a script may touch them together.

| key | type | content |
|---|---|---|
| `:w` | hash | the window's counters, bounds and watermark (services/window/window.lua) |
| `:m` | hash | message number -> message, for live and pending messages only |
| `:t` | hash | turn id -> digest of its content, first message number, count, time in milliseconds |
| `:i` | hash | message id -> message number |
| `:e` | set | ids of applied events |
| `:l` | list | live turns, oldest first |
| `:p` | list | turns that left the window and are in no chunk yet, oldest first |
| `:k` | hash | chunk id -> closed chunk that no summary covers yet |
| `:s` | hash | summary id -> summary in use |
| `:sa` | hash | summary id -> summary that was merged into another one; `<id>@<version>`: what its compression replaced |
| `:a` | hash | chunk id -> its messages, compressed |
| `:ao` | list | chunk ids, each at the place of its index; empty where no summary covers the chunk yet |
| `:o:<agent>` | hash | outbox: what an agent has decided to publish and has not confirmed yet |
"""

from __future__ import annotations

from typing import NamedTuple


class ChatKeys(NamedTuple):
    """The keys of one chat, ready for KEYS of a script."""

    window: str
    messages: str
    turns: str
    message_ids: str
    events: str
    live: str
    pending: str
    chunks: str
    summaries: str
    archived_summaries: str
    archive: str
    archive_order: str

    @classmethod
    def of(cls, chat: str) -> ChatKeys:
        """Keys of `chat`."""
        base = f"{{c:{chat}}}:"
        return cls(
            base + "w",
            base + "m",
            base + "t",
            base + "i",
            base + "e",
            base + "l",
            base + "p",
            base + "k",
            base + "s",
            base + "sa",
            base + "a",
            base + "ao",
        )


def outbox(chat: str, agent: str) -> str:
    """The outbox of one agent for one chat."""
    return f"{{c:{chat}}}:o:{agent}"


def channel(chat: str) -> str:
    """The pub/sub channel on which changes of a chat are announced to the gateways (JSON, see schemas/live.py)."""
    return f"{{c:{chat}}}:live"


WINDOW_PATTERN = "{c:*}:w"
"""Matches one key per chat: to list chats."""


def chat_of(key: str) -> str:
    """The chat that a key belongs to."""
    return key[3 : key.index("}")]
