"""A chat is deleted over HTTP on `afterturn up`, and `afterturn verify-deleted` proves it, while that runs and afterwards."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests import cli
from tests.e2e.frontend import summarised, turn, up
from tests.stack import lanes, require, until


@pytest.mark.rule("W7")
@pytest.mark.parametrize("broker", [each for each in ("embedded", "apache") if each in lanes()])
async def test_a_deleted_chat_is_gone_while_the_stack_runs_and_after_it(broker: str, tmp_path: Path) -> None:
    require(broker)
    data = tmp_path / "data"

    async def verified(code: int) -> dict[str, Any]:
        ended = await cli.run("verify-deleted", "c1", "--data", str(data), "--json")
        assert ended.code == code, ended.out + ended.err
        content: dict[str, Any] = json.loads(ended.out)
        return content

    async with up(broker, data) as running:
        frontend = running.frontend
        turns = [turn(number) for number in range(40)]
        await frontend.post(turns)
        await frontend.applied(40)
        await summarised(frontend, "c1")
        assert {each["detail"] for each in (await verified(1))["left"]} >= {"the chat is not deleted"}
        await frontend.post([{"type": "chat.deleted", "id": "gone", "chat": turns[0]["chat"]}])

        async def gone() -> bool:
            return (await cli.run("verify-deleted", "c1", "--data", str(data))).code == 0

        await until(gone, "nothing is left of the chat", 60)
        assert await frontend.context() is None
        # an event that comes too late is answered
        await frontend.post([turn(41)])
        await until(gone, "nothing is left of the late turn", 60)
        there = {each["store"]: each["detail"] for each in (await verified(0))["kept"]}
        assert "before a tombstone" in there["chat.turns.v1"]
        running.command.signal(signal.SIGTERM)
        assert (await running.command.ended(120)).code == 0
    resting = await verified(0)
    assert {each["store"] for each in resting["searched"]} >= {"redis", "clickhouse"}
    assert any(each["store"] == "chat.turns.v1" for each in resting["searched"]) is (broker == "apache")
    assert (await cli.run("verify-deleted", "c11", "--data", str(data))).code == 3
    assert (await cli.run("audit", "--data", str(data))).code == 0
