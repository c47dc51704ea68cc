"""One chat as it lies in Redis, read without the product's code: only the layout that docs and keys.py describe."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any, NamedTuple

from redis.asyncio import Redis


class Place(NamedTuple):
    """Where a message is: in chunk number `chunk`, or (-1) pending in no chunk, or (-2) live. Its text is None where it
    was deleted."""

    seq: int
    id: str
    text: str | None
    chunk: int


PENDING, LIVE = -1, -2


@dataclass(frozen=True)
class Chat:
    """`places` is every occurrence of a message: covered chunks by index, waiting chunks, pending turns, live turns.
    Below number `overlap` live messages may be in a chunk as well: the window was filled again. `rollbacks` of memories
    are not known to have taken effect."""

    id: str
    turns: int
    summarised: int
    overlap: int
    places: list[Place]
    stored: set[int]
    chunk_ids: list[str]
    waiting_chunks: list[dict[str, Any]]
    in_use: list[dict[str, Any]]
    archived: list[dict[str, Any]]
    outboxes: dict[str, list[str]]
    rollbacks: list[str]


async def chats(redis: Redis) -> list[str]:
    """Ids of all chats."""
    return sorted([key.decode()[3:-3] async for key in redis.scan_iter("{c:*}:w", count=1_000)])


async def read(redis: Redis, chat: str) -> Chat:
    """Everything of one chat, at one moment."""
    base = f"{{c:{chat}}}:"
    agents = ("window", "summarise", "merge")
    async with redis.pipeline(transaction=True) as pipe:
        for name in ("w", "m", "k", "s", "sa", "a"):
            pipe.hgetall(base + name)
        for name in ("ao", "l", "p"):
            pipe.lrange(base + name, 0, -1)
        for agent in agents:
            pipe.hkeys(base + f"o:{agent}")
        pipe.hkeys(base + "mr")
        w, m, k, s, sa, a, ao, live, pending, *outboxes, rollbacks = await pipe.execute()
    texts = {int(seq): json.loads(value) for seq, value in m.items()}
    waiting = sorted(map(json.loads, k.values()), key=lambda chunk: chunk["index"])
    chunk_ids = [id.decode() for id in ao]
    places: list[Place] = []
    for index, id in enumerate(chunk_ids):
        if id:
            rows = json.loads(zlib.decompress(a[id.encode()]))
            places += [Place(row[0], row[1], None if row[8:] else row[4], index) for row in rows]
    for chunk in waiting:
        span = chunk["span"]
        seqs = range(span["first_seq"], span["last_seq"] + 1)
        places += [_place(texts, seq, chunk["index"]) for seq in seqs]
    for items, where in ((pending, PENDING), (live, LIVE)):
        for item in items:
            first, count, *_ = map(int, item.split()[:3])
            places += [_place(texts, seq, where) for seq in range(first, first + count)]
    return Chat(
        id=chat,
        turns=int(w[b"tn"]),
        summarised=int(w.get(b"sm", 0)),
        overlap=int(w.get(b"co", 0)),
        places=places,
        stored=set(texts),
        chunk_ids=chunk_ids,
        waiting_chunks=waiting,
        in_use=sorted(map(json.loads, s.values()), key=_first),
        archived=sorted(map(json.loads, sa.values()), key=_first),
        outboxes={agent: [f.decode() for f in found] for agent, found in zip(agents, outboxes, strict=True)},
        rollbacks=[id.decode() for id in rollbacks],
    )


def _first(summary: dict[str, Any]) -> tuple[int, int]:
    return summary["span"]["first_seq"], summary["span"]["last_seq"]


def _place(texts: dict[int, list[Any]], seq: int, where: int) -> Place:
    row = texts.get(seq)
    if row is None:
        return Place(seq, "", "", where)
    return Place(seq, row[0], None if row[7:] else row[3], where)


async def keys_of(redis: Redis, chat: str) -> list[str]:
    """Names of a chat's keys, without its hash tag."""
    base = f"{{c:{chat}}}:"
    found = [key.decode() async for key in redis.scan_iter(base.replace("{", "[{]") + "*", count=5_000)]
    return sorted(key.removeprefix(base) for key in found)


async def everything(redis: Redis) -> list[str]:
    """Whatever any key holds, as text; archives unpacked."""
    keys = [key async for key in redis.scan_iter(count=5_000)]
    async with redis.pipeline(transaction=False) as pipe:
        for key in keys:
            pipe.type(key)
        types = await pipe.execute()
        for key, kind in zip(keys, types, strict=True):
            match kind:
                case b"hash":
                    pipe.hgetall(key)
                case b"list":
                    pipe.lrange(key, 0, -1)
                case b"set":
                    pipe.smembers(key)
                case b"string":
                    pipe.get(key)
                case _:
                    raise AssertionError(f"{key!r} is a {kind!r}")
        contents = await pipe.execute()
    return [text for content in contents for text in _texts(content)]


def _texts(content: Any) -> list[str]:
    if isinstance(content, dict):
        return [_text(part) for pair in content.items() for part in pair]
    return [_text(part) for part in (content if isinstance(content, list | set) else [content])]


def _text(value: bytes) -> str:
    try:
        return zlib.decompress(value).decode()
    except zlib.error:
        return value.decode()
