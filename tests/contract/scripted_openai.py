"""An OpenAI-compatible endpoint that behaves as a test says: real HTTP on a free loopback port.

Without a script it answers as an obedient model would: one timeline line per two messages (or every timeline line it
is given), and each sentence of the user that begins with "Never" as a rule. Of a description it makes a memory for each
sentence, of messages that memories are drafted from one for each of them.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Behaviour = Callable[[dict[str, Any]], Awaitable[web.StreamResponse]]
"""From a request's JSON to a response."""


class Scripted:
    """What the endpoint has received, and what it does next: `script` first, then it is obedient."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self.script: deque[Behaviour] = deque()
        self.released = asyncio.Event()
        self.url = ""

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One call of the model."""
        body = await request.json()
        self.requests.append(body)
        self.keys.append(request.headers.get("authorization", ""))
        behaviour = self.script.popleft() if self.script else obedient
        return await behaviour(body)

    async def hangs(self, body: dict[str, Any]) -> web.StreamResponse:
        """Accepts the request and never answers."""
        await self.released.wait()
        return await obedient(body)


@asynccontextmanager
async def serving() -> AsyncIterator[Scripted]:
    """A running endpoint."""
    scripted = Scripted()
    app = web.Application()
    app.router.add_post("/v1/chat/completions", scripted.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    scripted.url = f"http://{host}:{port}/v1"
    try:
        yield scripted
    finally:
        scripted.released.set()
        await runner.cleanup()


def data_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines between the markers of a request's first user message."""
    text = next(message["content"] for message in body["messages"] if message["role"] == "user")
    return [json.loads(line) for line in text.split("\n")[1:-1]]


def content(body: dict[str, Any]) -> dict[str, Any]:
    """What an obedient model answers."""
    if '"ready"' in json.dumps(body["response_format"]):
        return {"ready": True}
    lines = data_of(body)
    if lines and "description" in lines[0]:
        return {"memories": lines[0]["description"].split(". ")}
    if '"memories"' in json.dumps(body):
        return {
            "memories": [
                {"text": f"{line['who']}: {line['text']}", "messages": [line["n"]]} for line in lines
            ]
        }
    if not lines or "part" not in lines[0]:
        pairs = [lines[at : at + 2] for at in range(0, len(lines), 2)]
        timeline = [
            {
                "text": f"{pair[0]['who']}: {pair[0]['text'][:40]}",
                "first": pair[0]["n"],
                "last": pair[-1]["n"],
            }
            for pair in pairs
        ]
        rules = [
            {"quote": line["text"], "message": line["n"]}
            for line in lines
            if line["role"] == "user" and line["text"].startswith("Never")
        ]
        return {"timeline": timeline, "promises": [], "facts": [], "state": [], "rules": rules}
    named = {"promise": "promises", "fact": "facts", "state": "state"}
    answer: dict[str, Any] = {"timeline": [], "promises": [], "facts": [], "state": []}
    for line in lines:
        if line["part"] == "timeline" and line["summary"] > 0:
            answer["timeline"].append({key: line[key] for key in ("text", "first", "last")})
        elif line["part"] in named:
            answer[named[line["part"]]].append(line["text"])
    return answer


def completion(text: str, *, usage: bool = True) -> web.Response:
    """A chat completion with this content; 1,000 tokens in and 50 out where usage is reported."""
    reply: dict[str, Any] = {
        "id": "completion",
        "object": "chat.completion",
        "created": 0,
        "model": "scripted",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
    }
    if usage:
        reply["usage"] = {"prompt_tokens": 1_000, "completion_tokens": 50, "total_tokens": 1_050}
    return web.json_response(reply)


async def obedient(body: dict[str, Any]) -> web.StreamResponse:
    """The normal answer."""
    return completion(json.dumps(content(body)))


async def slow(body: dict[str, Any]) -> web.StreamResponse:
    """The normal answer, after a while."""
    await asyncio.sleep(0.1)
    return await obedient(body)


def says(text: str, *, usage: bool = True) -> Behaviour:
    """Answers with this content."""

    async def behave(_: dict[str, Any]) -> web.StreamResponse:
        return completion(text, usage=usage)

    return behave


def answers(**parts: Any) -> Behaviour:
    """The normal answer with some parts replaced."""

    async def behave(body: dict[str, Any]) -> web.StreamResponse:
        return completion(json.dumps(content(body) | parts))

    return behave


def fails(status: int, message: str = "no", headers: dict[str, str] | None = None) -> Behaviour:
    """Answers with an error."""

    async def behave(_: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": message}}, status=status, headers=headers)

    return behave


def raw(text: str, content_type: str) -> Behaviour:
    """Answers 200 with something that is no completion."""

    async def behave(_: dict[str, Any]) -> web.StreamResponse:
        return web.Response(text=text, content_type=content_type)

    return behave
