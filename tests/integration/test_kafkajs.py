"""Clients that know nothing but the published schema produce turns: kafkajs from Node, aiokafka from Python (rule F1)."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, ConsumerRecord
from aiokafka.partitioner import DefaultPartitioner
from jsonschema import Draft202012Validator

from schemas.delivery import Topics
from schemas.turns import TURN_EVENT
from tests.stack import Broker

ROOT = Path(__file__).parents[2]
NODE = ROOT / "examples" / "node"
PYTHON = ROOT / "examples" / "python" / "produce_turns.py"
SCHEMA = ROOT / "schemas" / "generated" / "turn.recorded.schema.json"
PARTITIONS = list(range(12))
CHATS, TURNS = 40, 3


async def command(*arguments: str, cwd: Path | None = None) -> str:
    """What a command prints. Fails with what it said where its exit code is not 0."""
    process = await asyncio.create_subprocess_exec(
        *arguments, cwd=cwd, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(), 120)
    except TimeoutError:
        process.kill()
        raise
    text = output.decode(errors="replace")
    assert process.returncode == 0, f"{arguments[0]}: {text}"
    return text


@pytest.fixture(scope="session")
def node_example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Node example with its locked packages, in a folder of its own."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("kafkajs: node and npm are not here")
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "produce-turns.mjs"):
        shutil.copy(NODE / name, folder / name)
    asyncio.run(command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder))
    return folder


async def consumed(broker: Broker, count: int) -> list[ConsumerRecord[bytes, bytes]]:
    """The records of the topic up to the one that makes `count` different values.

    A client that got no clear answer (a new partition without a leader yet) sends a whole request again, so
    there may be more records than values: that is what the ids are for.
    """
    consumer = AIOKafkaConsumer(
        Topics.TURNS, bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", group_id=None
    )
    records: list[ConsumerRecord[bytes, bytes]] = []
    async with consumer, asyncio.timeout(60):
        while len({record.value for record in records}) < count:
            for batch in (await consumer.getmany(timeout_ms=1000)).values():
                records.extend(batch)
    return records


def check(records: list[ConsumerRecord[bytes, bytes]]) -> dict[str, list[Any]]:
    """Each event satisfies schema and model and lies where murmur2 puts it; events by chat, in order, repeats left out."""
    validator = Draft202012Validator(json.loads(SCHEMA.read_text("utf-8")))
    partitioner = DefaultPartitioner()
    chats: dict[str, list[Any]] = {}
    for record in records:
        assert record.key is not None
        assert record.value is not None
        value = json.loads(record.value)
        validator.validate(value)
        event = TURN_EVENT.validate_json(record.value)
        assert record.key == event.chat.id.encode()
        assert record.partition == partitioner(record.key, PARTITIONS, PARTITIONS)
        events = chats.setdefault(event.chat.id, [])
        if event not in events:
            events.append(event)
    return chats


@pytest.mark.rule("F1")
async def test_kafkajs_writes_turns_where_they_belong(node_example: Path, broker: Broker) -> None:
    arguments = ("--brokers", broker.bootstrap, "--chats", str(CHATS), "--turns", str(TURNS))
    said = await command("node", "produce-turns.mjs", *arguments, cwd=node_example)
    assert f"{CHATS * TURNS} turns" in said
    records = await consumed(broker, CHATS * TURNS)
    chats = check(records)
    assert len(chats) == CHATS
    assert all([event.turn.id for event in events] == ["t0", "t1", "t2"] for events in chats.values())
    assert {record.partition for record in records} == set(PARTITIONS), "the keys reach every partition"


@pytest.mark.rule("F1")
async def test_aiokafka_writes_turns_where_they_belong(broker: Broker) -> None:
    await command(sys.executable, str(PYTHON), broker.bootstrap)
    chats = check(await consumed(broker, 2))
    assert [event.turn.id for event in chats["python-0"]] == ["t0", "t1"]


def test_the_lock_file_pins_kafkajs_and_names_no_download_address() -> None:
    lock = json.loads((NODE / "package-lock.json").read_text("utf-8"))
    package = json.loads((NODE / "package.json").read_text("utf-8"))
    assert package["dependencies"] == {"kafkajs": "2.2.4"}
    locked = {name: entry for name, entry in lock["packages"].items() if name}
    assert locked["node_modules/kafkajs"]["version"] == "2.2.4"
    for entry in locked.values():
        assert entry["integrity"].startswith("sha512-")
        assert "resolved" not in entry
    assert "http" not in json.dumps(lock)
