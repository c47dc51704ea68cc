"""Imports a file: reads it as a stream, publishes its turns in batches, and tells what it could not use."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import ijson
from pydantic import ValidationError

from schemas.chat import UserRef
from schemas.delivery import Outgoing, Topics
from schemas.errors import said
from schemas.turns import TurnRecorded
from services.imports import head as heads
from services.imports.checkpoint import Checkpoint, Mark
from services.imports.events import event
from services.imports.formats import detect
from services.imports.policy import Grouping, Turn
from services.imports.port import ChatStart, ImportRefused, Options, SourceMessage, Unusable
from services.imports.source import Source

SHOWN = 20
"""Places of unusable things, and ids of chats, that a report keeps; all of them are counted."""

BATCH_BYTES = 4 << 20
"""Published together at most, but for the record that goes over it."""

Publish = Callable[[Sequence[Outgoing]], Awaitable[None]]
"""Returns once all records are confirmed; raises otherwise."""


class Progress(NamedTuple):
    """`read` of `size` bytes; turns and chats so far."""

    read: int
    size: int
    chats: int
    turns: int


@dataclass
class Report:
    """What came of an import. `already` counts messages that an earlier run had confirmed. `ids` are those of the first
    chats."""

    format: str = ""
    chats: int = 0
    ids: list[str] = field(default_factory=list)
    turns: int = 0
    messages: int = 0
    already: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    first: list[Unusable] = field(default_factory=list)

    def chat(self, id: str) -> None:
        """Count it, and keep its id if it is among the first."""
        self.chats += 1
        if len(self.ids) < SHOWN:
            self.ids.append(id)

    def unusable(self, found: Unusable) -> None:
        """Count it, and keep it if it is among the first."""
        self.reasons[found.reason] += 1
        if len(self.first) < SHOWN:
            self.first.append(found)


class Planned(NamedTuple):
    """An event, and what is confirmed with it."""

    event: TurnRecorded
    mark: Mark


class _Moved(Exception):
    """A checkpoint does not fit the file any more."""


def events(
    source: Source, options: Options, report: Report, marks: Mapping[str, Mark] | None = None
) -> Iterator[Planned]:
    """The turns of the file in order; `report` is filled on the way. Raises ImportRefused."""
    head = heads.read(source)
    known = detect(head)
    report.format = known.name
    chat: _Chat | None = None
    items = known.read(source, head, options)
    while True:
        try:
            item = next(items, None)
        except (ijson.JSONError, UnicodeDecodeError):
            report.unusable(Unusable(f"near byte {source.position}", "not JSON from here on"))
            item = None
        if item is None:
            break
        if isinstance(item, Unusable):
            report.unusable(item)
        elif isinstance(item, ChatStart):
            if chat is not None:
                yield from chat.finish()
                if options.chat:
                    raise ImportRefused("--chat names one chat, and this export has several")
            chat = _Chat(item, options, report, marks or {})
        elif chat is not None:
            yield from chat.add(item)
    if chat is not None:
        yield from chat.finish()


class _Chat:
    """One chat on its way through grouping."""

    def __init__(self, start: ChatStart, options: Options, report: Report, marks: Mapping[str, Mark]) -> None:
        self._start = start._replace(id=options.chat or start.id)
        self._user = options.user
        self._report = report
        self._mark = marks.get(self._start.id)
        self._skip = self._mark.read if self._mark else 0
        self._grouping = Grouping(self._skip)
        report.chat(self._start.id)

    def add(self, message: SourceMessage) -> Iterator[Planned]:
        if self._skip:
            self._skip -= 1
            self._report.already += 1
            if not self._skip and self._mark and message.key != self._mark.last:
                raise _Moved
            return
        turn = self._grouping.add(message)
        if turn is not None:
            yield from self._planned(turn)

    def finish(self) -> Iterator[Planned]:
        if self._skip:
            raise _Moved
        waiting = self._grouping.unanswered
        if waiting:
            self._report.unusable(
                Unusable(f"end of chat {self._start.id}", "not answered yet: waits for a later import")
            )
        turn = self._grouping.finish()
        if turn is not None:
            yield from self._planned(turn)

    def _planned(self, turn: Turn) -> Iterator[Planned]:
        try:
            built = event(self._start, turn, self._user)
        except ValidationError as error:
            place = f"message {turn.messages[0].key} of chat {self._start.id}"
            self._report.unusable(Unusable(place, said(error.errors()[0])))
            return
        self._report.turns += 1
        self._report.messages += len(turn.messages)
        yield Planned(built, Mark(self._start.id, turn.read, turn.messages[-1].key))


async def run(
    path: Path,
    publish: Publish,
    options: Options | None = None,
    *,
    checkpoint: Checkpoint | None = None,
    progress: Callable[[Progress], None] | None = None,
    batch: int = 200,
) -> Report:
    """Import one file. Raises ImportRefused, OSError, and whatever `publish` raises.

    Stopped at any point and run again, it goes on behind the last confirmed batch.
    """
    options = options or Options()
    _check(options)
    marks = checkpoint.load() if checkpoint else {}
    try:
        return await _run(path, publish, options, marks, checkpoint, progress, batch)
    except _Moved:
        # the file has changed before that place: all of it once more, the ids keep it from doubling
        assert checkpoint is not None
        checkpoint.clear()
        return await _run(path, publish, options, {}, checkpoint, progress, batch)


def _check(options: Options) -> None:
    for option, value in (("chat", options.chat), ("user", options.user)):
        if value is None:
            continue
        try:
            UserRef(id=value)
        except ValidationError as error:
            raise ImportRefused(f"--{option}: {said(error.errors()[0])}") from None


async def _run(
    path: Path,
    publish: Publish,
    options: Options,
    marks: Mapping[str, Mark],
    checkpoint: Checkpoint | None,
    progress: Callable[[Progress], None] | None,
    batch: int,
) -> Report:
    report = Report()
    source = await asyncio.to_thread(Source, path)
    try:
        planned = events(source, options, report, marks)
        # reading in a thread: the caller's connections stay alive beside it
        while taken := await asyncio.to_thread(_take, planned, batch):
            await publish([record for record, _ in taken])
            if checkpoint is not None:
                checkpoint.add(mark for _, mark in taken)
            if progress is not None:
                progress(Progress(source.position, source.size, report.chats, report.turns))
    finally:
        source.close()
    return report


def _take(planned: Iterator[Planned], batch: int) -> list[tuple[Outgoing, Mark]]:
    """The next records, at most `batch` and about BATCH_BYTES."""
    taken: list[tuple[Outgoing, Mark]] = []
    size = 0
    for one in planned:
        record = outgoing(one.event)
        taken.append((record, one.mark))
        size += len(record.value or b"")
        if len(taken) >= batch or size >= BATCH_BYTES:
            break
    return taken


def outgoing(event: TurnRecorded) -> Outgoing:
    """The record for Kafka."""
    value = event.model_dump_json(exclude_none=True).encode()
    return Outgoing(Topics.TURNS, event.chat.id.encode(), value)
