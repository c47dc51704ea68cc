"""Every call of the gateway that docs/http.md and docs/frontend.md show about memories, in their order, is answered."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest
from redis.asyncio import Redis

from schemas.delivery import Topics
from schemas.turns import TURN_EVENT
from tests.gateway import Applying, app_on, play, started, turn

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
_CALL = re.compile(r"^curl .*?(?=^curl |\Z)", re.DOTALL | re.MULTILINE)


class Call(NamedTuple):
    method: str
    url: str
    headers: dict[str, str]
    body: str | None


def calls(page: str, start: str, end: str) -> Iterator[Call]:
    """The curl calls between two headings."""
    text = (DOCS / page).read_text(encoding="utf-8")
    section = text[text.index(f"\n{start}\n") : text.index(f"\n{end}\n")]
    for block in _BLOCK.findall(section):
        for call in _CALL.findall(block.replace("\\\n", " ")):
            yield parsed(shlex.split(call)[1:])


def parsed(words: list[str]) -> Call:
    method, headers, body, url = None, {}, None, ""
    rest = iter(words)
    for word in rest:
        if word == "-X":
            method = next(rest)
        elif word == "-H":
            name, _, value = next(rest).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(rest)
        elif not word.startswith("-"):
            url = word.replace("$API", "http://gateway").replace("localhost:8080", "http://gateway")
    assert headers.pop("Authorization") == "Bearer $TOKEN"
    parts = urlsplit(url)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    return Call(method or ("GET" if body is None else "POST"), path, headers, body)


@pytest.mark.rule("F1", "M7", "M10")
@pytest.mark.parametrize(
    ("page", "start", "end", "count"),
    [
        ("http.md", "## Saved memories", "## GET /v1/chats/{chat}/events", 9),
        ("frontend.md", "## 6. Let the character remember", "## 7. Kafka instead of HTTP", 3),
    ],
)
async def test_the_calls_of_a_page_are_answered(
    redis: Redis, page: str, start: str, end: str, count: int
) -> None:
    chat = {"id": "c1", "surface": "web", "characters": ["mira"]}
    await play(redis, [{**turn(0), "chat": chat}])
    agent = Applying(redis=redis)
    found = list(calls(page, start, end))
    assert len(found) == count
    async with started(app_on(redis, agent)) as http:
        for call in found:
            content = None if call.body is None else call.body.encode()
            response = await http.request(call.method, call.url, headers=call.headers, content=content)
            assert response.status_code < 300, (call, response.text)
            answer: dict[str, Any] = response.json()
            for checked in answer.get("calls", ()):
                assert checked["ok"], checked
            for draft in answer.get("drafts", ()):
                assert draft["fits"], draft
    recorded = [record for record in agent.records if record.topic == Topics.TURNS]
    for record in recorded:
        await play(redis, [TURN_EVENT.validate_json(record.value).model_dump(mode="json")], first_offset=1)
        assert json.loads(record.value)["memory"]["ops"]
