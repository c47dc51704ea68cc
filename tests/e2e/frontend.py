"""What a frontend does: it starts nothing but `afterturn up`, writes turns, and reads a context."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx

from tests import cli
from tests.stack import until

START = datetime(2026, 11, 30, 10, tzinfo=UTC)
SEEN = "the ferry to Orre leaves at {n} past seven and costs {n} crowns, and Theo promised to bring rope number {n}"
MODEL = {"name": "reply-model", "context_window": 65_536}

Part = dict[str, Any]


def turn(number: int, chat: str = "c1", *, said: str = SEEN, **more: Any) -> dict[str, Any]:
    """A turn of two messages, m0 and m1 for the first one, as a frontend writes it by hand."""
    text = said.format(n=number)
    return {
        "type": "turn.recorded",
        "id": f"{chat}-e{number}",
        "at": (START + timedelta(minutes=number)).isoformat(),
        "chat": {"id": chat, "surface": "web", "characters": ["mira"]},
        "user": {"id": "ida"},
        "turn": {"id": f"t{number}"},
        "messages": [
            {"id": f"m{2 * number}", "role": "user", "author": "ida", "text": f"{number}: {text}."},
            {
                "id": f"m{2 * number + 1}",
                "role": "assistant",
                "author": "mira",
                "text": f"Mira noted: {text}.",
            },
        ],
        "model": MODEL,
        "usage": {"prompt_tokens": 1_000 + number, "completion_tokens": 40},
        **more,
    }


class Frontend:
    """A client of one gateway."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self.http = http

    async def post(self, turns: Sequence[dict[str, Any]]) -> None:
        """All of them in one request, accepted."""
        answer = await self.http.post("/v1/turns", json=list(turns))
        assert (answer.status_code, answer.json()["refused"]) == (202, 0), answer.text

    async def context(self, chat: str = "c1", **query: Any) -> dict[str, Any] | None:
        """The context of the next reply; None as long as the chat is not known."""
        answer = await self.http.get(f"/v1/chats/{chat}/context", params=query)
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def memory(self, chat: str = "c1") -> dict[str, Any]:
        """What the chat remembers."""
        answer = await self.http.get(f"/v1/chats/{chat}/memory")
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def turns(self, chat: str = "c1") -> int:
        """Turns that have been applied."""
        answer = await self.http.get(f"/v1/chats/{chat}/memory")
        return 0 if answer.status_code == 404 else int(answer.json()["turns"])

    async def applied(self, turns: int, chat: str = "c1") -> None:
        """Until so many turns are."""

        async def done() -> bool:
            return await self.turns(chat) >= turns

        await until(done, f"{turns} turns of {chat} are applied", 60)
        assert await self.turns(chat) == turns


def covered(context: dict[str, Any]) -> int:
    """How many messages the context covers from the chat's first one on. Raises AssertionError at a hole (W6)."""
    next_seq = 0
    memories, *parts = context["parts"]
    assert memories["part"] == "memories"
    for part in parts:
        span = part["span"]
        if span is None:
            continue
        assert span["first_seq"] == next_seq, (
            f"{part['part']} begins at {span['first_seq']}, what is before it ends at {next_seq - 1}"
        )
        next_seq = span["last_seq"] + 1
        if "messages" in part:
            seqs = [message["seq"] for message in part["messages"]]
            assert seqs == list(range(span["first_seq"], next_seq))
    assert context["left_out"] == []
    return next_seq


def part(context: dict[str, Any], name: str) -> Part:
    """One part of a context."""
    return next(part for part in context["parts"] if part["part"] == name)


def verbatim(context: dict[str, Any]) -> dict[str, str]:
    """Id and text of every message that is there word for word."""
    messages = part(context, "pending")["messages"] + part(context, "live")["messages"]
    return {message["id"]: message["text"] for message in messages}


def texts(turns: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Id and text of every message that was written."""
    return {message["id"]: message["text"] for turn in turns for message in turn["messages"]}


async def summarised(frontend: Frontend, chat: str) -> dict[str, Any]:
    """The chat's memory once every closed chunk has its summary and no four recent ones are left."""
    memory: dict[str, Any] = {}

    async def quiet() -> bool:
        nonlocal memory
        memory = await frontend.memory(chat)
        waiting = [len(tier["summaries"]) for tier in memory["tiers"] if tier["tier"] != "long_term"]
        return memory["pending"]["chunks"] == 0 and max(waiting) < 4

    await until(quiet, "everything is summarised and merged", 60)
    return memory


class Up:
    """A running `afterturn up` and a client of its gateway."""

    def __init__(self, command: cli.Command, frontend: Frontend, kafka: str) -> None:
        self.command = command
        self.frontend = frontend
        self.kafka = kafka


@asynccontextmanager
async def up(broker: str, data: Path | None = None, **environment: str) -> AsyncIterator[Up]:
    """`afterturn up`, ready; killed at the end where the block has not ended it."""
    keep = () if data is None else ("--data", str(data))
    async with cli.started("up", "--port", "0", "--broker", broker, *keep, **environment) as command:
        await command.line("ready;", 120)
        url, token, kafka = [
            (await command.line(f"{word} ")).split()[-1] for word in ("gateway", "token", "kafka")
        ]
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=30) as http:
            yield Up(command, Frontend(http), kafka)


async def audited(data: Path, **environment: str) -> dict[str, Any]:
    """What `afterturn audit` says of a folder."""
    ended = await cli.run("audit", "--data", str(data), "--json", **environment)
    report: dict[str, Any] = json.loads(ended.out)
    assert (ended.code, report["errors"]) == (0, 0), ended.out
    return report
