"""Names of the Redis keys. All keys of a chat share one hash slot, so that a script may touch them together.

| key | type | content |
|---|---|---|
| `:w` | hash | the window's counters, bounds and watermark (services/window/window.lua) |
| `:m` | hash | message number -> message, for live and pending messages only |
| `:t` | hash | turn id -> digest of its content, first message number, count, time in milliseconds, ids of its messages |
| `:to` | list | turn ids, in the order of the chat |
| `:i` | hash | message id -> message number |
| `:e` | set | ids of applied events |
| `:l` | list | live turns, oldest first |
| `:p` | list | turns that left the window and are in no chunk yet, oldest first |
| `:k` | hash | chunk id -> closed chunk that no summary covers yet |
| `:s` | hash | summary id -> summary in use |
| `:sa` | hash | summary id -> summary that was merged into another one; `<id>@<version>`: what its compression replaced |
| `:a` | hash | chunk id -> its messages, compressed |
| `:ao` | list | chunk ids, each at the place of its index; empty where no summary covers the chunk yet |
| `:mu` | hash | turn id -> user in whose saved memories the turn may have written |
| `:mr` | hash | command id -> rollback of saved memories that is not known to have taken effect |
| `:o:<agent>` | hash | outbox: what an agent has decided to publish and has not confirmed yet |
All keys of a user share one hash slot as well.

| key | type | content |
|---|---|---|
| `:w` | hash | watermark (`ep`, `pa`, `of`), `v` version, `n` number of the newest change |
| `:x` | hash | memory id -> scope ('' where the entry is gone), space, number of its newest change |
| `:s:<scope>` | hash | memory id -> entry |
| `:h` | hash | number -> change: the history |
| `:j:<chat>` | hash | turn id -> numbers of the changes that it made, space separated: the journal |
| `:c`, `:co` | hash, list | command id -> its result; ids in the order they came, of as many as are remembered |
| `:l` | hash | character -> `0` where chats with it are not learned from |
| `:o:memories` | hash | outbox |
| `:o:drafts` | hash | outbox of what drafting has cost |
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
    turn_order: str
    memory_users: str
    memory_rollbacks: str

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
            base + "to",
            base + "mu",
            base + "mr",
        )


class UserKeys(NamedTuple):
    """The keys of one user's saved memories, ready for KEYS of a script."""

    watermark: str
    places: str
    history: str
    commands: str
    command_order: str
    settings: str
    outbox: str
    channel: str

    @classmethod
    def of(cls, user: str) -> UserKeys:
        """Keys of `user`."""
        base = f"{{u:{user}}}:"
        return cls(
            base + "w",
            base + "x",
            base + "h",
            base + "c",
            base + "co",
            base + "l",
            base + "o:memories",
            base + "live",
        )


def scope(user: str, scope: str) -> str:
    """The entries of one scope of a user."""
    return f"{{u:{user}}}:s:{scope}"


def journal(user: str, chat: str) -> str:
    """What the turns of one chat have written into a user's memories."""
    return f"{{u:{user}}}:j:{chat}"


USER_PATTERN = "{u:*}:w"
"""Matches one key per user with saved memories."""


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


def user_of(key: str) -> str:
    """The user that a key belongs to."""
    return key[3 : key.index("}")]
