"""Reads what a plan needs, and not more: the work is proportional to what is taken back, not to the chat.

`ask` answers several commands of Redis at one moment (services.state.transaction.at_once, or a Copy). Between two of
them the chat may change: `of_version` gives an `ask` that notices.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from schemas.chunks import ChunkClosed
from services.failures import Poison
from services.state.keys import ChatKeys
from services.takeback import tree
from services.takeback.values import Chat, Item, Row, Stored, TurnEntry, row, unpack

Ask = Callable[[Sequence[tuple[Any, ...]]], Awaitable[list[Any]]]

PAGE = 256
"""Turns in one answer."""


class Changed(Exception):
    """The chat is not the one any more that was read: a summary was saved, another worker took something back. What
    is missing is not damage, and what a plan would refuse may be right now."""


def of_version(ask: Ask, chat: Chat) -> Ask:
    """`ask` for what belongs to `chat` as it was read. Raises Changed, and then gives no answer."""

    async def asked(commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        *answers, version = await ask([*commands, ("HGET", ChatKeys.of(chat.id).window, "v")])
        if (version or b"").decode() != chat.fields.get("v", ""):
            raise Changed
        return answers

    return asked


def table(answer: Any) -> dict[bytes, bytes]:
    """An answer to HGETALL: a map in RESP3, a flat list in RESP2."""
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))


async def chat(ask: Ask, id: str) -> Chat | None:
    """The chat without its archives; None for an unknown one."""
    k = ChatKeys.of(id)
    window, live, pending, chunks, summaries = await ask(
        [
            ("HGETALL", k.window),
            ("LRANGE", k.live, 0, -1),
            ("LRANGE", k.pending, 0, -1),
            ("HVALS", k.chunks),
            ("HVALS", k.summaries),
        ]
    )
    fields = {name.decode(): value.decode() for name, value in table(window).items()}
    if not fields:
        return None
    stored = map(Stored.parse, summaries)
    return Chat(
        id=id,
        fields=fields,
        live=tuple(map(Item.parse, live)),
        pending=tuple(map(Item.parse, pending)),
        chunks=tuple(sorted(map(ChunkClosed.model_validate_json, chunks), key=lambda chunk: chunk.index)),
        summaries={summary.id: summary for summary in stored},
    )


async def archived(ask: Ask, chat: Chat, touched: tree.Touched) -> tree.Apart:
    """Loads the archived summaries that taking the touched ones apart needs."""
    k = ChatKeys.of(chat.id)
    while names := tree.wanted(chat.summaries, chat.archived, touched):
        (found,) = await ask([("HMGET", k.archived_summaries, *names)])
        for name, raw in zip(names, found, strict=True):
            if raw is None:
                raise Poison(
                    f"chat.id: the archive of this chat lacks the summary {name}; its state is damaged"
                )
            chat.archived[name] = Stored.parse(raw)
    return tree.take_apart(chat.summaries, chat.archived, touched)


async def for_cut(ask: Ask, chat: Chat, at: int, messages: int) -> None:
    """Loads what taking back every message from number `at` on needs, and archives to fill the window again with up to
    `messages`, 0 for none."""
    apart = await archived(ask, chat, lambda _, last: last >= at)
    gone = [chunk for chunk in chat.chunks if chunk.span.last_seq >= at]
    spanning = [summary.id for summary in apart.chunks if summary.first < at]
    for id in spanning:
        await _archive(ask, chat, id)
    low = min([at, *(s.first for s in apart.chunks), *(chunk.span.first_seq for chunk in gone)])
    await _rows(ask, chat, range(low, at))
    if messages:
        low = await _refill(ask, chat, at, low, chat.number("ci") - len(apart.chunks) - len(gone), messages)
    await turns_from(ask, chat, low)
    await _memory_users(ask, chat, [turn.id for turn in chat.turns if turn.first >= at])


async def _refill(ask: Ask, chat: Chat, at: int, low: int, chunks: int, messages: int) -> int:
    """Loads the newest chunks that stay, until they have `messages` beside what is verbatim. The lowest number loaded."""
    k = ChatKeys.of(chat.id)
    first = min([low, *(item.first for item in (*chat.live, *chat.pending) if item.first < at)])
    for place in range(chunks - 1, -1, -1):
        if at - first >= messages:
            break
        closed = next((chunk for chunk in chat.chunks if chunk.index == place), None)
        if closed is not None:
            await _rows(ask, chat, range(closed.span.first_seq, closed.span.last_seq + 1))
            first = min(first, closed.span.first_seq)
            continue
        ((id,),) = await ask([("LRANGE", k.archive_order, place, place)])
        chat.order[place] = id.decode()
        first = min(first, min(await _archive(ask, chat, id.decode())))
    return min(low, first)


async def _archive(ask: Ask, chat: Chat, id: str) -> dict[int, Row]:
    if id not in chat.archives:
        (raw,) = await ask([("HGET", ChatKeys.of(chat.id).archive, id)])
        if raw is None:
            raise Poison(f"chat.id: the archive of this chat lacks the chunk {id}; its state is damaged")
        chat.archives[id] = unpack(raw)
    return chat.archives[id]


async def _rows(ask: Ask, chat: Chat, numbers: Iterable[int]) -> None:
    """Messages that are live or pending, as far as they are."""
    wanted = [seq for seq in numbers if seq not in chat.rows]
    if wanted:
        (found,) = await ask([("HMGET", ChatKeys.of(chat.id).messages, *wanted)])
        chat.rows.update((seq, row(raw)) for seq, raw in zip(wanted, found, strict=True) if raw is not None)


async def turns_from(ask: Ask, chat: Chat, first: int) -> None:
    """Loads the newest turns, back to the one that has message `first`."""
    k = ChatKeys.of(chat.id)
    end = chat.number("tn")
    found: list[TurnEntry] = []
    while end > 0 and not (found and found[0].first <= first):
        start = max(0, end - PAGE)
        (ids,) = await ask([("LRANGE", k.turn_order, start, end - 1)])
        (entries,) = await ask([("HMGET", k.turns, *ids)])
        page = [TurnEntry.parse(id.decode(), raw) for id, raw in zip(ids, entries, strict=True) if raw]
        found[:0] = page
        end = start
    chat.turns[:] = [turn for turn in found if turn.end > first]


async def turn(ask: Ask, chat: str, id: str) -> TurnEntry | None:
    """One turn."""
    (raw,) = await ask([("HGET", ChatKeys.of(chat).turns, id)])
    return None if raw is None else TurnEntry.parse(id, raw)


async def _memory_users(ask: Ask, chat: Chat, turns: Sequence[str]) -> None:
    if turns:
        (users,) = await ask([("HMGET", ChatKeys.of(chat.id).memory_users, *turns)])
        chat.memory_users.update(
            (turn, user.decode()) for turn, user in zip(turns, users, strict=True) if user
        )


async def for_edit(ask: Ask, chat: Chat, message: str) -> int | None:
    """Loads what changing one message needs; its number, or None where the chat has no such message."""
    k = ChatKeys.of(chat.id)
    (number,) = await ask([("HGET", k.message_ids, message)])
    if number is None:
        return None
    seq = int(number)
    apart = await archived(ask, chat, lambda first, last: first <= seq <= last)
    for summary in apart.chunks:
        rows = await _archive(ask, chat, summary.id)
        chat.rows.update(rows)
        (place,) = await ask([("LPOS", k.archive_order, summary.id)])
        if place is None:
            raise Poison(f"chat.id: the archive of this chat has no place for the chunk {summary.id}")
        chat.order[place] = summary.id
    for chunk in chat.chunks:
        if chunk.span.first_seq <= seq <= chunk.span.last_seq:
            await _rows(ask, chat, range(chunk.span.first_seq, chunk.span.last_seq + 1))
    await _rows(ask, chat, [seq])
    if seq not in chat.rows:
        raise Poison(
            f"message.id: the text of message {message} is missing; the state of this chat is damaged"
        )
    await _memory_users(ask, chat, [chat.rows[seq].turn])
    return seq
