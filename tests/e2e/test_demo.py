"""`afterturn demo --json`: a newcomer's first command, as a process."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from schemas.context import Part
from streams.demo.conversation import turns
from tests import cli
from tests.contract.scripted_openai import fails, serving
from tests.stack import lanes

pytestmark = pytest.mark.skipif("embedded" not in lanes(), reason="the demo runs on the embedded broker")


def stated() -> list[str]:
    """Messages of the user that state a rule by an explicit mark."""
    texts = [message.text for turn in turns() for message in turn.messages if message.role == "user"]
    return [text for text in texts if "OOC:" in text or "((" in text]


async def play(folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    """The demo to its end: one JSON object, nothing left behind."""
    async with cli.started(
        "demo", "--json", *arguments, TMPDIR=str(folder), HOME=str(folder), **environment
    ) as command:
        ended = await command.ended(200)
        assert ended.code == 0, ended.err
        assert not command.alive
    # the token table's cache stays, everything else goes
    assert [name for name in os.listdir(folder) if not name.startswith("afterturn-tiktoken-")] == []
    assert len(ended.out.splitlines()) == 1
    result: dict[str, Any] = json.loads(ended.out)
    return result


def check(result: dict[str, Any]) -> None:
    """What holds whoever summarises."""
    assert result["turns"]["sent"] == result["turns"]["applied"] >= 250
    assert min(result["summaries"].values()) >= 1, result["summaries"]
    assert result["usage"]["sent"] == result["usage"]["booked"] >= result["turns"]["sent"]
    assert Decimal(result["credits"]["sent"]) == Decimal(result["credits"]["clickhouse"]) > 0
    parts = result["context"]["parts"]
    assert [part["part"] for part in parts] == [part.value for part in Part]
    assert sum(part["tokens"] for part in parts) == result["context"]["totals"]["tokens"]
    assert result["live"]["messages"] > 0
    # a tool write and its correction, a pin, a reply that was taken back with what it had saved, and a fork
    texts = {memory["id"]: memory["text"] for memory in result["memories"]}
    assert result["pinned"] == ["mem-heron"]
    assert "9.2 metres" in texts["mem-heron"]
    [made_up] = result["regenerated"]["saved"]
    assert result["regenerated"]["taken_back"] == [made_up]
    assert made_up not in texts
    assert parts[0]["ids"] == [memory["id"] for memory in result["memories"]]
    assert result["fork"]["messages"] > 0
    assert result["fork"]["summaries"] > 0
    assert 0 < result["summarised_share"] < 1


@pytest.mark.rule("S2", "S5", "S9", "C2", "F2", "F4", "M7", "M8", "M9", "W7", "W8")
async def test_the_demo_without_a_model(tmp_path: Path) -> None:
    result = await play(tmp_path)
    check(result)
    messages = " ".join(message.text for turn in turns() for message in turn.messages)
    assert all(quote in messages for quote in result["rules_kept"])
    for text in stated():
        assert any(quote in text for quote in result["rules_kept"]), text
    assert set(result["spend"]) >= {"reply"}


@pytest.mark.rule("S1", "C1")
async def test_the_demo_with_a_model(tmp_path: Path) -> None:
    async with serving() as model:
        environment = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "key-of-the-test"}
        result = await play(tmp_path, "--model", "scripted", **environment)
        check(result)
        assert set(model.keys) == {"Bearer key-of-the-test"}
        assert set(result["spend"]) >= {"reply", "chunk", "merge"}
        uses = sum(stage["uses"] for name, stage in result["spend"].items() if name != "reply")
        assert 0 < uses <= len(model.requests)


async def test_a_model_that_does_not_answer_is_told_before_anything_starts() -> None:
    async with serving() as model:
        model.script.append(fails(401))
        key = "key-of-the-test"
        ended = await cli.run("demo", "--model", "x", OPENAI_BASE_URL=model.url, OPENAI_API_KEY=key)
    assert ended.code == 1
    assert "Redis" not in ended.out
    assert "OPENAI_API_KEY" in ended.err
    assert key not in ended.err
    ended = await cli.run("demo", "--model", "x", "--base-url", "http://127.0.0.1:1/v1")
    assert ended.code == 1
    assert "OPENAI_BASE_URL" in ended.err


async def test_an_endpoint_without_a_model_is_a_wrong_setting() -> None:
    ended = await cli.run("demo", "--json", OPENAI_BASE_URL="http://127.0.0.1:1/v1")
    assert ended.code == 2
    assert "--model" in ended.err
