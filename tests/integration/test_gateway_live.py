"""Server-sent events over real HTTP, and the server's end."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from redis.asyncio import Redis
from redis.asyncio.client import PubSub

from schemas.live import Notice
from services.gateway.hub import QUEUE, Hub, Signal, Subscription
from services.gateway.server import GRACE_SECONDS, Handle, serve
from services.state import keys
from tests.gateway import Recorder, app_on, bearer, play, summarise, turn, user_token

pytestmark = pytest.mark.timeout(60)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[tuple[Handle, httpx.AsyncClient]]:
    handle = await serve(app, "127.0.0.1", 0)
    base = f"http://{handle.host}:{handle.port}"
    try:
        async with httpx.AsyncClient(base_url=base, headers=bearer(), timeout=30) as http:
            yield handle, http
    finally:
        await handle.stop()


class Events:
    """Events and comments of one stream, one after the other."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self._lines = response.aiter_lines()

    async def next(self) -> tuple[str, Any]:
        kind = ""
        async for line in self._lines:
            if line.startswith("event: "):
                kind = line.removeprefix("event: ")
            elif line.startswith("data: "):
                return kind, json.loads(line.removeprefix("data: "))
        raise EOFError

    async def comment(self) -> str:
        async for line in self._lines:
            if line.startswith(":"):
                return line
        raise EOFError


@asynccontextmanager
async def stream(http: httpx.AsyncClient, chat: str = "c1", **headers: str) -> AsyncIterator[Events]:
    async with http.stream("GET", f"/v1/chats/{chat}/events", headers=headers) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Events(response)


async def until(condition: Any) -> None:
    """Lets other tasks run until it holds; the test's timeout bounds it."""
    while not condition():  # noqa: ASYNC110 - the server's counters have no event to wait for
        await asyncio.sleep(0.01)


@pytest.mark.rule("F3")
async def test_a_snapshot_comes_first_and_every_change_after_it(redis: Redis) -> None:
    await play(redis, [turn(number) for number in range(29)])
    async with running(app_on(redis, Recorder())) as (_, http), stream(http) as events:
        kind, snapshot = await events.next()
        assert kind == "snapshot"
        assert snapshot == {
            "type": "snapshot",
            "version": 29,
            "live_messages": 50,
            "pending_messages": 8,
            "summaries": [],
        }
        (chunk,) = await play(redis, [turn(29)], first_offset=29)
        assert await events.next() == (
            "window",
            {"type": "window", "version": 30, "live_messages": 50, "pending_messages": 10},
        )
        await summarise(redis, chunk)
        kind, changed = await events.next()
        assert (kind, changed["summary_id"], changed["version"]) == ("summary", chunk.id, 1)
        assert (await events.next())[1]["pending_messages"] == 0
        await redis.publish(keys.channel("c1"), Notice(text="done").model_dump_json())
        assert await events.next() == ("notice", {"type": "notice", "text": "done"})


async def test_streams_share_a_connection_and_let_go_of_their_chat(redis: Redis) -> None:
    await play(redis, [turn(0), turn(0, chat="c2")])
    app = app_on(redis, Recorder())
    channel = keys.channel("c1").encode()
    async with running(app) as (_, http):
        async with stream(http) as one, stream(http) as two, stream(http, "c2") as other:
            for events in (one, two, other):
                assert (await events.next())[0] == "snapshot"
            assert app.state.hub.channels == 2
            assert dict(await redis.pubsub_numsub(channel)) == {channel: 1}
            clients = [each for each in await redis.client_list() if each["sub"] != "0"]
            assert len(clients) == 1
            await play(redis, [turn(1)], first_offset=1)
            assert (await one.next())[0] == (await two.next())[0] == "window"
        await until(lambda: app.state.hub.channels == 0 and app.state.streams == 0)
        assert dict(await redis.pubsub_numsub(channel)) == {channel: 0}


async def test_a_quiet_stream_is_kept_open_by_comments(redis: Redis) -> None:
    await play(redis, [turn(0)])
    async with running(app_on(redis, Recorder(), heartbeat=0.01)) as (_, http), stream(http) as events:
        assert (await events.next())[0] == "snapshot"
        assert (await events.comment()).startswith(":")


async def test_stopping_ends_the_streams(redis: Redis) -> None:
    await play(redis, [turn(0)])
    async with running(app_on(redis, Recorder())) as (handle, http), stream(http) as events:
        assert (await events.next())[0] == "snapshot"
        # well before the time that requests under way are given
        async with asyncio.timeout(GRACE_SECONDS):
            await handle.stop()
        with pytest.raises(EOFError):
            await events.next()
        with pytest.raises(httpx.ConnectError):
            await http.get("/healthz")


async def test_a_stream_ends_with_its_token(redis: Redis) -> None:
    await play(redis, [turn(0)])
    now = [datetime.now(UTC)]
    app = app_on(redis, Recorder(), clock=lambda: now[0], heartbeat=0.01)
    async with running(app) as (_, http), stream(http, **bearer(user_token("u1"))) as events:
        assert (await events.next())[0] == "snapshot"
        now[0] += timedelta(hours=2)
        with pytest.raises(EOFError):
            await events.next()


async def test_a_lost_connection_to_redis_is_told_with_a_new_snapshot(redis: Redis) -> None:
    await play(redis, [turn(0)])
    async with running(app_on(redis, Recorder())) as (_, http), stream(http) as events:
        assert (await events.next())[0] == "snapshot"
        await redis.client_kill_filter(_type="pubsub")
        await play(redis, [turn(1)], first_offset=1)
        kind, data = await events.next()
        # the hint of the turn may have been missed, or have come through on the new connection first
        while kind != "snapshot":
            kind, data = await events.next()
        assert data["version"] == 2


async def test_the_number_of_streams_is_bounded(redis: Redis) -> None:
    await play(redis, [turn(0)])
    async with running(app_on(redis, Recorder(), streams=1)) as (_, http), stream(http) as events:
        await events.next()
        response = await http.get("/v1/chats/c1/events")
    assert response.status_code == 503


async def test_without_redis_no_stream_begins() -> None:
    async with Redis(port=1) as away, running(app_on(away, Recorder())) as (_, http):
        assert (await http.get("/v1/chats/c1/events")).status_code == 503


async def test_a_subscription_that_redis_does_not_confirm_fails_and_leaves_nothing(redis: Redis) -> None:
    hub = Hub(redis)  # never started: nothing confirms
    with pytest.raises(TimeoutError):
        async with hub.subscribe("c1", 0.01):
            pytest.fail("not confirmed")
    assert hub.channels == 0
    await hub.close()


async def test_who_comes_second_is_subscribed_when_the_first_one_leaves_at_once(
    redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, held = asyncio.Event(), asyncio.Event()
    subscribe = PubSub.subscribe

    async def slowly(self: PubSub, *names: bytes) -> None:
        if keys.channel("c1").encode() in names and not asked.is_set():
            asked.set()
            await held.wait()
        await subscribe(self, *names)

    monkeypatch.setattr(PubSub, "subscribe", slowly)
    hub = Hub(redis)

    async def listen() -> bytes | Signal | None:
        async with hub.subscribe("c1", 5) as reader:
            await redis.publish(keys.channel("c1"), b"hint")
            return await reader.next(5)

    hub.start()
    try:
        async with hub.subscribe("other", 5):
            pass
        first = asyncio.create_task(listen())
        await asked.wait()
        second = asyncio.create_task(listen())
        await asyncio.sleep(0)  # the second one waits behind the first
        first.cancel()
        assert await second == b"hint"
        assert hub.channels == 0
    finally:
        await hub.close()


async def test_a_slow_reader_is_told_that_it_missed_something() -> None:
    reader = Subscription()
    for number in range(QUEUE):
        reader.put(b"%d" % number)
    assert await reader.next(1) == b"0"
    reader.put(b"fits")
    reader.put(b"one too many")
    assert await reader.next(1) is Signal.missed
    assert await reader.next(0) is None


async def test_a_port_in_use_is_an_error(redis: Redis) -> None:
    async with running(app_on(redis, Recorder())) as (handle, _):
        with pytest.raises(OSError, match="in use"):
            await serve(app_on(redis, Recorder()), "127.0.0.1", handle.port)
