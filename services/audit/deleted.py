"""Proves that a deleted chat is gone: searches Redis, the ledger and the log, says what was searched and what is left.

Kept by rule: the mark in Redis, rows of the ledger (what was used was used, C1), and saved memories, unless the deletion
was to take those of its replies back as well. It reads, and changes nothing; no text is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, cast

from redis.asyncio import Redis

from services.audit import read_users
from services.audit.naming import Named
from services.audit.policy import MARK_FIELDS
from services.audit.user import UserSnapshot
from services.state import agents, keys
from services.state.deleted import MARK

Progress = Callable[[int], None]
"""Told the number of keys and records looked at so far."""

ANSWERS = b"gateway:idempotency:"
"""Keys of answers that a gateway repeats, for a day (services/gateway/idempotency.py)."""


class Searched(NamedTuple):
    """`number` of `what` were looked at in `store`."""

    store: str
    what: str
    number: int


class Found(NamedTuple):
    """Something of the chat in `store`; `detail` names keys, places and numbers only."""

    store: str
    detail: str


@dataclass(frozen=True, slots=True)
class TopicState:
    """What a topic has of a chat. `before`: records with a value that a tombstone of the same key follows: readers skip
    them. `behind`: those that none follows. `elsewhere`: those under another key. Places are `partition:offset`. `emptied`:
    dead letters without their value.

    `forget` tells what the chat's deletion said about memories, where the topic still has it.
    """

    topic: str
    partitions: int
    records: int
    before: int = 0
    tombstones: int = 0
    emptied: int = 0
    behind: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    memories: int = 0
    forget: bool | None = None


class Log(Protocol):
    """The topics that may have something of a chat."""

    async def search(self, chat: str, progress: Progress) -> Sequence[TopicState]:
        """Read all of them. Raises Transient where the broker does not answer."""


class Rows(Protocol):
    """The ledger's tables."""

    async def of_chat(self, chat: str) -> tuple[int, Sequence[str]]:
        """Rows that name the chat, and the columns that they have."""


@dataclass(slots=True)
class Verdict:
    """`left` ought not to be there; `kept` is by rule. `known`: something, be it a tombstone, tells that there was such a
    chat; where nothing does, that nothing is left proves nothing about a chat with a similar id."""

    chat: str
    known: bool = False
    searched: list[Searched] = field(default_factory=list)
    left: list[Found] = field(default_factory=list)
    kept: list[Found] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Nothing is left."""
        return not self.left

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        parts = {
            name: [each._asdict() for each in getattr(self, name)] for name in ("searched", "left", "kept")
        }
        return {"ok": self.ok, "chat": self.chat, "known": self.known, **parts}


_IDS = {"id", "user_id", "chat_id", "character", "model", "stage"}
_NUMBERS = {
    "topic",
    "partition",
    "offset",
    "at",
    "tokens_in",
    "tokens_out",
    "credits",
    "booked_at",
    "booking_rank",
}
COLUMNS = frozenset(_IDS | _NUMBERS)
"""Columns of the ledger: none holds a text of a chat."""


async def verify(redis: Redis, rows: Rows, log: Log | None, chat: str, progress: Progress) -> Verdict:
    """Search everything. Without a `log` there is none: that of a broker in memory that was stopped.

    Raises redis.RedisError, Transient and Fatal of the other stores.
    """
    verdict = Verdict(chat)
    seen = 0

    def further(count: int) -> None:
        progress(seen + count)

    forget = None
    if log is None:
        verdict.searched.append(Searched("log", "topics: a broker in memory, which does not run", 0))
    else:
        for state in await log.search(chat, further):
            seen += state.records
            _topic(verdict, state)
            forget = forget or state.forget
    await _redis(verdict, redis, bool(forget), further)
    await _rows(verdict, rows)
    return verdict


def _topic(verdict: Verdict, state: TopicState) -> None:
    name = state.topic
    verdict.searched.append(Searched(name, f"records in {state.partitions} partitions", state.records))
    of_chat = (state.before, state.tombstones, state.emptied, state.memories, state.behind, state.elsewhere)
    verdict.known |= any(of_chat)
    for places, why in (
        (state.behind, "no tombstone follows them"),
        (state.elsewhere, "they are under another key than the chat's"),
    ):
        if places:
            some = ", ".join(places[:3]) + (", ..." if len(places) > 3 else "")
            verdict.left.append(Found(name, f"{len(places)} records ({some}): {why}"))
    if state.before:
        detail = f"{state.before} records before a tombstone: readers skip them, Kafka drops them with its retention"
        verdict.kept.append(Found(name, detail))
    if state.emptied:
        detail = f"{state.emptied} dead letters of late events, without their value"
        verdict.kept.append(Found(name, detail))
    if state.memories:
        detail = (
            f"{state.memories} commands on saved memories that came from the chat, until Kafka's retention"
        )
        verdict.kept.append(Found(name, detail))


async def _redis(verdict: Verdict, redis: Redis, forget: bool, progress: Progress) -> None:
    chat, named, seen = verdict.chat, Named(verdict.chat), 0
    mine = f"{{c:{chat}}}:".encode()
    window = keys.ChatKeys.of(chat).window
    users, answers, own = 0, 0, []
    memories, changes, back = 0, 0, 0
    async for found_key in redis.scan_iter(count=1_000):
        key = cast("bytes", found_key)
        seen += 1
        progress(seen)
        if key.startswith(mine):
            own.append(key.decode())
        elif key.startswith(ANSWERS):
            answers += 1
            value = cast("bytes | None", await redis.get(key))
            if value is not None and named.inside(value) and b'"drafts"' in value:
                verdict.known = True
                seconds = await redis.ttl(key)
                detail = (
                    f"drafts of memories from the chat, for a repeat within {seconds} s more: {key.decode()}"
                )
                verdict.left.append(Found("redis", detail))
        elif key.startswith(b"{u:") and key.endswith(b"}:w"):
            users += 1
            found = await read_users.user_snapshot(redis, keys.user_of(key.decode()))
            if found is not None:
                entries, texts, standing = _memories(found[0], chat)
                memories, changes, back = memories + entries, changes + texts, back + standing
    verdict.searched += [
        Searched("redis", "keys", seen),
        Searched("redis", "keys of the chat", len(own)),
        Searched("redis", "answers of the gateway", answers),
        Searched("redis", "users' saved memories", users),
    ]
    await _own(verdict, redis, window, own)
    verdict.known |= bool(own or memories or changes)
    if memories or changes:
        detail = f"{memories} saved memories that came from the chat, {changes} changes in their history"
        verdict.kept.append(Found("redis", detail))
    if forget and back:
        detail = f"{back} changes by the chat's replies, which were to be taken back with it"
        verdict.left.append(Found("redis", detail))


async def _own(verdict: Verdict, redis: Redis, window: str, own: Sequence[str]) -> None:
    boxes = {keys.outbox(verdict.chat, agent) for agent in agents.OF_CHATS}
    for key in sorted(set(own)):
        if key in boxes:
            count = await redis.hlen(key)
            verdict.left.append(Found("redis", f"{count} entries of {key} are still to be published"))
        elif key != window:
            verdict.left.append(Found("redis", f"the key {key}"))
    if window not in own:
        verdict.kept.append(
            Found("redis", "no mark: Redis does not know this chat, or its id is another one")
        )
        return
    fields = {name.decode() for name in cast("list[bytes]", await redis.hkeys(window))}
    if MARK not in fields:
        verdict.left.append(Found("redis", "the chat is not deleted"))
    elif fields - MARK_FIELDS:
        verdict.left.append(Found("redis", f"fields of {window}: {', '.join(sorted(fields - MARK_FIELDS))}"))
    else:
        verdict.kept.append(Found("redis", f"{window}: the mark that the chat was deleted"))


def _memories(user: UserSnapshot, chat: str) -> tuple[int, int, int]:
    """Entries that came from the chat, changes that did and have a text, and those of replies that could go."""
    entries = {
        change.memory_id
        for change in user.changes.values()
        if change.source is not None and change.source.chat == chat and change.sets_text
    }
    texts = [
        change
        for change in user.changes.values()
        if change.source is not None and change.source.chat == chat and (change.before or change.after)
    ]
    standing = [
        change
        for change in user.of_turns()
        if change.source is not None and change.source.chat == chat and not user.ever_pinned(change.memory_id)
    ]
    there = {entry.id for entry in user.entries}
    return len(entries & there), len(texts), len(standing)


async def _rows(verdict: Verdict, rows: Rows) -> None:
    count, columns = await rows.of_chat(verdict.chat)
    verdict.searched.append(Searched("clickhouse", "rows of the chat", count))
    for name in sorted(set(columns) - COLUMNS):
        verdict.left.append(Found("clickhouse", f"the column {name}: what it holds is not known"))
    if count:
        verdict.known = True
        detail = f"{count} rows: who used what when, for the books; they hold no text"
        verdict.kept.append(Found("clickhouse", detail))
