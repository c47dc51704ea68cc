"""`afterturn up`: started, stopped, killed, started again. Each row of the table in docs/operations.md, from the outside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests import cli
from tests.e2e.frontend import Up, audited, covered, part, summarised, texts, turn, up, verbatim
from tests.faults import ledger
from tests.stack import lanes, require, until

TURNS = 60
BROKERS = [broker for broker in ("embedded", "apache") if broker in lanes()]


@pytest.fixture(params=BROKERS)
def kind(request: pytest.FixtureRequest) -> str:
    """A broker that `afterturn up` starts itself."""
    require(request.param)
    return str(request.param)


def some(first: int, last: int) -> list[dict[str, Any]]:
    """Turns by their numbers, the last one not included."""
    return [turn(number) for number in range(first, last)]


def is_there(pid: int) -> bool:
    """Whether a process runs (one that has ended and was not waited for counts as gone)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children(pid: int) -> list[int]:
    """Processes that this one has started."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(child) for child in (task / "children").read_text().split()]
    return found


def kept(folder: Path) -> list[str]:
    """What is in a folder for temporary files, beside the cache of the token table."""
    return [name for name in os.listdir(folder) if not name.startswith("afterturn-tiktoken-")]


async def stopped(running: Up) -> str:
    """SIGTERM; what it said until its end."""
    running.command.signal(signal.SIGTERM)
    ended = await running.command.ended(120)
    assert ended.code == 0, ended.err
    assert not running.command.alive
    return ended.out


async def booked(data: Path, turns: int) -> None:
    """So many turns are stored soundly, and each reply is in ClickHouse once."""
    assert (await audited(data))["read"]["messages"] == 2 * turns
    assert (await asyncio.to_thread(ledger.read, data / "clickhouse")).replies == turns


@pytest.mark.rule("F1", "F2", "F4", "W6")
async def test_a_clean_stop_finishes_what_was_published_and_keeps_it(kind: str, tmp_path: Path) -> None:
    async with up(kind, tmp_path / "data") as running:
        await running.frontend.post(some(0, TURNS))
        # at once: most of it is still in the log
        out = await stopped(running)
        assert "stopped" in out
        assert "deadline has passed" not in out
    assert (await audited(tmp_path / "data"))["read"]["messages"] == 2 * TURNS

    async with up(kind, tmp_path / "data") as running:
        frontend = running.frontend
        before = await frontend.context()
        assert before is not None
        assert covered(before) == 2 * TURNS
        assert part(before, "recent")["ids"]
        # a memory-only log begins at offset 0 again: new turns are no repeats (promise 9), old ones are
        await frontend.post(some(0, 5))
        await frontend.post(some(TURNS, TURNS + 5))
        await frontend.applied(TURNS + 5)
        after = await frontend.context()
        assert after is not None
        assert covered(after) == 2 * TURNS + 10
        assert verbatim(after).items() <= texts(some(0, TURNS + 5)).items()
        await stopped(running)
    await booked(tmp_path / "data", TURNS + 5)


@pytest.mark.rule("W6", "C2")
async def test_a_kill_keeps_the_stores_and_with_apache_the_log(kind: str, tmp_path: Path) -> None:
    async with up(kind, tmp_path / "data") as running:
        await running.frontend.post(some(0, 30))
        await running.frontend.applied(30)
        servers = children(json.loads((tmp_path / "data" / "running.json").read_text())["pid"])
        assert len(servers) >= 2
        await running.frontend.post(some(30, TURNS))
        running.command.signal(signal.SIGKILL)
        assert (await running.command.ended()).code == -signal.SIGKILL

        async def gone() -> bool:
            return not any(map(is_there, servers))

        await until(gone, "the servers have ended with their parent")

    async with up(kind, tmp_path / "data") as running:
        frontend = running.frontend
        if kind == "apache":
            await frontend.applied(TURNS)
        assert await frontend.turns() >= 30
        # what a memory-only log has taken with it may be sent again, and all of it at that
        await frontend.post(some(0, TURNS + 10))
        await frontend.applied(TURNS + 10)
        context = await frontend.context()
        assert context is not None
        assert covered(context) == 2 * TURNS + 20
        # also chunks whose announcement went with the log
        await summarised(frontend, "c1")
        await stopped(running)
    await booked(tmp_path / "data", TURNS + 10)


@pytest.mark.skipif("embedded" not in lanes(), reason="of the embedded broker")
async def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    temporary = {"TMPDIR": str(tmp_path)}
    for number in (signal.SIGTERM, signal.SIGKILL):
        async with up("embedded", **temporary) as running:
            await running.frontend.post(some(0, 3))
            await running.frontend.applied(3)
            running.command.signal(number)
            await running.command.ended()
        left = kept(tmp_path)
        assert len(left) == (number == signal.SIGKILL), left
    async with up("embedded", **temporary) as running:
        assert await running.frontend.turns() == 0
        assert len(kept(tmp_path)) == 1
        await stopped(running)
    assert kept(tmp_path) == []


@pytest.mark.skipif("embedded" not in lanes(), reason="of the embedded broker")
async def test_a_second_stack_on_the_folder_is_refused_in_one_line(tmp_path: Path) -> None:
    async with up("embedded", tmp_path / "data") as running:
        second = await cli.run("up", "--data", str(tmp_path / "data"), "--port", "0")
        assert second.code == 1
        assert second.err.splitlines()[-1].startswith("afterturn: ")
        assert "in use" in second.err
        await stopped(running)
