"""Commands beside `afterturn up --data DIR`: import, audit and dlq without addresses, while it runs and while it rests."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from redis.asyncio import Redis

from infra.stack import valkey
from schemas.delivery import Topics
from services.audit.service import audit
from services.state.keys import ChatKeys
from tests import cli
from tests.gateway import Recorder, app_on, bearer, client, play, turn, user_token
from tests.stack import until

MESSAGES = 120


def history(folder: Path, messages: int = MESSAGES) -> Path:
    """Plain JSONL with two lines that cannot be used."""
    file = folder / "history.jsonl"
    lines = [
        json.dumps(
            {
                "role": "user" if number % 2 == 0 else "assistant",
                "content": f"message {number} " + "word " * 30,
            }
        )
        for number in range(messages)
    ]
    lines[10:10] = ["{not json", json.dumps({"role": "user", "content": ""})]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


@asynccontextmanager
async def up(data: Path) -> AsyncIterator[cli.Command]:
    """A stack on this folder, ready."""
    arguments = ("up", "--data", str(data), "--port", "0", "--broker", "embedded")
    async with cli.started(*arguments) as command:
        await command.line("ready;")
        yield command


async def ended(command: cli.Command) -> None:
    """Stop it in order."""
    command.signal(signal.SIGTERM)
    result = await command.ended()
    assert result.code == 0, result.err
    assert not command.alive


async def audited(data: Path, *more: str) -> tuple[int, dict[str, Any]]:
    """Exit code and report of `afterturn audit`."""
    result = await cli.run("audit", "--data", str(data), "--json", *more)
    assert result.out, result.err
    return result.code, json.loads(result.out)


@pytest.mark.rule("F4")
async def test_import_audit_and_dead_letters_of_a_stack(tmp_path: Path) -> None:
    data = tmp_path / "data"
    file = history(tmp_path)
    async with up(data) as stack:
        imported = await cli.run("import", str(file), "--chat", "old", "--data", str(data))
        assert imported.code == 0, imported.err
        assert f"60 turns, {MESSAGES} messages published" in imported.out
        assert "2 could not be used:" in imported.out
        assert "line 11: " in imported.out

        async def applied() -> bool:
            _, report = await audited(data)
            return bool(report["read"]["messages"] == MESSAGES)

        await until(applied, "the import is in the window", 90)
        code, report = await audited(data, "--chat", "old")
        assert (code, report["errors"], report["at_rest"], report["ledger"]) == (0, 0, False, True)
        assert (await audited(data, "--chat", "nobody"))[0] == 1

        again = await cli.run("import", str(file), "--chat", "old", "--data", str(data))
        assert again.code == 0
        assert "0 turns, 0 messages published\n  chat old\n" in again.out
        assert f"\n{MESSAGES} messages were imported by an earlier run" in again.out

        kafka = json.loads((data / "running.json").read_text())["kafka"]
        await _publish(kafka, b"not json")

        async def dead() -> bool:
            listed = await cli.run("dlq", "list", "--data", str(data))
            return "1 dead letters" in listed.out

        await until(dead, "the dead letter", 60)
        dropped = await cli.run("dlq", "drop", "--all", "--data", str(data))
        assert (dropped.code, dropped.out.splitlines()[-1]) == (0, "1 dropped, 0 refused")
        listed = await cli.run("dlq", "list", "--data", str(data), "--handled", "--json")
        assert json.loads(listed.out)["handled"].startswith("dropped ")
        await ended(stack)

    code, report = await audited(data)
    assert (code, report["errors"], report["at_rest"], report["ledger"]) == (0, 0, True, True)
    assert report["read"]["messages"] == MESSAGES
    await _lose_a_message(data)
    code, report = await audited(data)
    assert code == 1
    assert report["errors"] > 0


async def _publish(kafka: str, value: bytes) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=kafka)
    await producer.start()
    await producer.send_and_wait(Topics.TURNS, key=b"odd", value=value)
    await producer.stop()


async def _lose_a_message(data: Path) -> None:
    server = await asyncio.to_thread(valkey.start, data / "redis", data / "logs" / "redis.log", keep=True)
    async with Redis.from_url(valkey.url(server)) as redis:
        key = ChatKeys.of("old").messages
        (first, *_) = await redis.hkeys(key)
        await redis.hdel(key, first)
    await asyncio.to_thread(server.stop)


@pytest.mark.parametrize("bare_broker", ["embedded"], indirect=True)
async def test_a_stopped_import_says_how_to_go_on(broker: Any, tmp_path: Path, redis_url: str) -> None:
    file = history(tmp_path, 200_000)
    settings = {
        "AFTERTURN_KAFKA": broker.bootstrap,
        "AFTERTURN_REDIS": redis_url,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    async with cli.started("import", str(file), **settings) as command:

        async def marked() -> bool:
            return _marks(tmp_path / "cache")

        await until(marked, "the first mark", 60)
        command.signal(signal.SIGINT)
        stopped = await command.ended()
    assert stopped.code == 130, stopped.err
    assert "Traceback" not in stopped.err
    assert stopped.err.endswith(f"afterturn import {file}")


def _marks(cache: Path) -> bool:
    return any((cache / "afterturn" / "imports").glob("*.jsonl"))


@pytest.mark.parametrize("bare_broker", ["embedded"], indirect=True)
async def test_a_file_without_a_history_ends_with_an_error(broker: Any, tmp_path: Path) -> None:
    settings = {"AFTERTURN_KAFKA": broker.bootstrap, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    nothing = tmp_path / "nothing.jsonl"
    nothing.write_text('{"role": "user", "content": ""}\n')
    ended = await cli.run("import", str(nothing), **settings)
    assert ended.code == 1
    assert "line 1: " in ended.out
    unknown = tmp_path / "unknown.json"
    unknown.write_text('{"a": 1}')
    assert (await cli.run("import", str(unknown), **settings)).code == 2


async def test_the_route_is_for_services_and_needs_an_audit(redis: Redis) -> None:
    await play(redis, [turn(number) for number in range(3)])
    async with client(app_on(redis, Recorder())) as http:
        assert (await http.post("/v1/audit")).status_code == 404

    async def check(chat: str | None, user: str | None) -> Any:
        return await audit(redis, None, chat=chat, user=user)

    async with client(app_on(redis, Recorder(), audit=check)) as http:
        assert (await http.post("/v1/audit", headers=bearer("wrong"))).status_code == 401
        assert (await http.post("/v1/audit", headers=bearer(user_token("u1")))).status_code == 403
        response = await http.post("/v1/audit", params={"chat": "c1"})
        assert response.status_code == 200
        assert (response.json()["read"]["messages"], response.json()["errors"]) == (6, 0)
        assert not (await http.post("/v1/audit", params={"chat": "c9"})).json()["ok"]
        unknown = (await http.post("/v1/audit", params={"user": "u9"})).json()
        assert (unknown["read"]["chats"], unknown["findings"][0]["user"]) == (0, "u9")
