"""An OpenAI-compatible endpoint that answers after a random while and counts its calls by what they ask for."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, NamedTuple

from aiohttp import web

from tests.contract.scripted_openai import completion, data_of
from tests.stack import until

MODEL = "scripted"
CHUNK = 10
"""Messages of a chunk."""

QUICK, SLOW, SLOW_SHARE = (0.02, 0.2), (0.5, 2.0), 0.2
"""Seconds of an answer. The slow ones are overtaken by many others, are in flight when their worker is killed, and
when others' offsets are committed."""


class Asked(NamedTuple):
    """What a call wants summarised: a chunk or a merge of these messages of a chat, or of one that was forked from it."""

    stage: str
    chat: str
    first: int
    last: int


class Model:
    """The endpoint's state. `open` calls have not been answered yet; `dropped` are those whose caller went away."""

    def __init__(self, seed: int) -> None:
        self.calls: Counter[Asked] = Counter()
        self.open = 0
        self.most = 0
        self.dropped = 0
        self.url = ""
        self._dice = random.Random(seed)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One call: one timeline line that covers all, names the chat, and quotes the numbers of its texts."""
        lines = data_of(await request.json())
        asked = _asked(lines)
        self.calls[asked] += 1
        self.open += 1
        self.most = max(self.most, self.open)
        try:
            slow = self._dice.random() < SLOW_SHARE
            await asyncio.sleep(self._dice.uniform(*(SLOW if slow else QUICK)))
        except asyncio.CancelledError:
            self.dropped += 1
            raise
        finally:
            self.open -= 1
        line = {"text": _told(asked, lines), "first": asked.first, "last": asked.last}
        answer: dict[str, Any] = {"timeline": [line], "promises": [], "facts": [], "state": []}
        if asked.stage == "chunk":
            answer["rules"] = []
        return completion(json.dumps(answer))

    async def busy(self) -> None:
        """Until some calls are open, or for two seconds."""

        async def open() -> bool:
            return self.open >= 4

        with suppress(TimeoutError):
            await until(open, "calls of the model are open", 2.0)


def _asked(lines: list[dict[str, Any]]) -> Asked:
    chat = lines[0]["text"].split(" ", 1)[0]
    if "part" in lines[0]:
        return Asked("merge", chat, lines[0]["first"], lines[-1]["last"])
    return Asked("chunk", chat, lines[0]["n"], lines[-1]["n"])


_WENT_ON = " went on:"


def numbers(line: str) -> list[int]:
    """What a line of this model quotes."""
    return [int(number) for number in line.partition(_WENT_ON)[2].split()]


def _told(asked: Asked, lines: list[dict[str, Any]]) -> str:
    if asked.stage == "chunk":
        quoted = [int(line["text"].split(":")[0].split(" ")[1]) for line in lines]
    else:
        quoted = [number for line in lines for number in numbers(line["text"])]
        if any(line["last"] - line["first"] >= CHUNK for line in lines):
            # into the long-term memory, which has room for a part of it only
            quoted = quoted[::3]
    return f"{asked.chat}{_WENT_ON} {' '.join(map(str, quoted))}"


@asynccontextmanager
async def serving(seed: int) -> AsyncIterator[Model]:
    """A running endpoint."""
    model = Model(seed)
    app = web.Application()
    app.router.add_post("/v1/chat/completions", model.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    model.url = f"http://{host}:{port}/v1"
    try:
        yield model
    finally:
        await runner.cleanup()
