"""The OpenAPI document tells the truth: schemathesis calls a running gateway by it, and holds the answers against it."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from redis.asyncio import Redis
from schemathesis.specs.openapi import checks

from services.gateway.server import serve
from services.gateway.turns import check
from tests.gateway import Applying, Recorder, app_on, bearer, play, summarise, turn

SETTINGS = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def base_url(redis_url: str) -> Iterator[str]:
    """A gateway in a loop and thread of its own, over a Redis with one chat."""
    ready: threading.Event = threading.Event()
    found: list[str] = []
    ends: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def run() -> None:
        async with Redis.from_url(redis_url) as redis:
            await redis.flushdb()
            for chunk in await play(redis, [turn(number) for number in range(40)]):
                if chunk.index == 0:
                    await summarise(redis, chunk, rules=["never mention the sea"])
            handle = await serve(app_on(redis, Applying(redis=redis)), "127.0.0.1", 0)
            found.append(f"http://{handle.host}:{handle.port}")
            ends.append((asyncio.get_running_loop(), asyncio.Event()))
            ready.set()
            await ends[0][1].wait()
            await handle.stop()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(30)
    yield found[0]
    loop, end = ends[0]
    loop.call_soon_threadsafe(end.set)
    thread.join()


# the document needs no store; a stream of events has no end: tests/integration/test_gateway_live.py reads it
api = schemathesis.openapi.from_dict(app_on(Redis(), Recorder()).openapi()).exclude(path_regex="/events$")

# what the same models accept from Kafka is accepted here: "5" for 5, and two messages may not share an id,
# which a schema cannot say; no more can it say which messages a chat has, or which keys repeat a request
_LENIENT = [checks.negative_data_rejection, checks.positive_data_acceptance]
# an id may have a slash: a path with two of them may be another route's as well; and each method is a route of its own
_METHODS = [checks.unsupported_method, checks.allow_header_conformance]


@api.parametrize()
@SETTINGS
def test_answers_are_as_documented(case: schemathesis.Case, base_url: str) -> None:
    excluded = _LENIENT if case.method in ("POST", "PATCH", "PUT", "DELETE") else []
    if case.path.startswith("/v1/users/"):
        excluded = [*excluded, *_METHODS]
    case.call_and_validate(base_url, headers=bearer(), excluded_checks=excluded)


@api.include(path_regex="chats").parametrize()
@SETTINGS
def test_answers_about_a_chat_that_exists_are_as_documented(case: schemathesis.Case, base_url: str) -> None:
    case.path_parameters["chat"] = "c1"
    excluded = _LENIENT if case.method in ("POST", "PATCH") else [checks.negative_data_rejection]
    case.call_and_validate(base_url, headers=bearer(), excluded_checks=excluded)


def test_the_event_in_the_documentation_is_one_that_is_accepted() -> None:
    text = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
    found = re.search(r"-d '(\{.*?\})'\n```", text, re.DOTALL)
    assert found is not None
    assert check(json.loads(found[1]), "2026-11-30T10:00:00Z").status == "accepted"
