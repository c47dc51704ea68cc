"""A copy of a chat's keys in this process: a fork is planned and carried out on it before anything is stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from services.takeback.changes import BRING, Changes, Step


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class Copy:
    """Answers the reading commands that `services.takeback.reading` asks, and carries out Changes."""

    def __init__(self, hashes: dict[str, dict[bytes, bytes]], lists: dict[str, list[bytes]]) -> None:
        self.hashes = hashes
        self.lists = lists

    async def ask(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The answers, as Redis would give them."""
        return [self._answer(*command) for command in commands]

    def _answer(self, command: str, key: str, *arguments: Any) -> Any:
        if command == "LRANGE":
            items = self.lists.get(key, [])
            first, last = (len(items) + at if at < 0 else at for at in arguments)
            return items[max(0, first) : last + 1]
        if command == "LLEN":
            return len(self.lists.get(key, []))
        if command == "LPOS":
            items = self.lists.get(key, [])
            return items.index(_bytes(arguments[0])) if _bytes(arguments[0]) in items else None
        table = self.hashes.get(key, {})
        if command == "HGETALL":
            return dict(table)
        if command == "HVALS":
            return list(table.values())
        if command == "HGET":
            return table.get(_bytes(arguments[0]))
        if command == "HMGET":
            return [table.get(_bytes(name)) for name in arguments]
        raise ValueError(f"{command} is not known to a copy")

    def apply(self, changes: Changes) -> None:
        """Carry out every step."""
        for step in changes.steps:
            self._apply(step)

    def _apply(self, step: Step) -> None:
        command, key, arguments = step
        if command == "HSET":
            names, values = arguments[::2], arguments[1::2]
            self.hashes.setdefault(key, {}).update(zip(map(_bytes, names), map(_bytes, values), strict=True))
        elif command == BRING:
            source, *pairs = arguments
            for there, here in zip(pairs[::2], pairs[1::2], strict=True):
                value = self.hashes[str(source)][_bytes(there)]
                self.hashes.setdefault(key, {})[_bytes(here)] = value
        elif command == "HDEL":
            for name in arguments:
                self.hashes.get(key, {}).pop(_bytes(name), None)
        elif command == "DEL":
            self.hashes.pop(key, None)
            self.lists.pop(key, None)
        elif command == "RPUSH":
            self.lists.setdefault(key, []).extend(map(_bytes, arguments))
        elif command == "LTRIM":
            self.lists[key] = self.lists.get(key, [])[: int(arguments[1]) + 1]
        elif command == "SADD":
            pass  # which events were applied is no part of a copy
        elif command == "LSET":
            self.lists[key][int(arguments[0])] = _bytes(arguments[1])
        else:
            raise ValueError(f"{command} is not known to a copy")
