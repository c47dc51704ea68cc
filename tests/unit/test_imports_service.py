"""An import that is stopped, run again, or run on a file that has grown doubles nothing and loses nothing."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest

from schemas.delivery import Outgoing, Topics
from schemas.turns import TURN_EVENT, TurnRecorded
from services.failures import Transient
from services.imports.checkpoint import Checkpoint
from services.imports.port import ImportRefused, Options
from services.imports.service import Progress, run

DATA = Path(__file__).parent / "data" / "imports"


class Log:
    """A topic in memory; `fail_after` batches it stops confirming."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.records: list[Outgoing] = []
        self.fail_after = fail_after

    async def publish(self, records: Sequence[Outgoing]) -> None:
        if self.fail_after is not None:
            if self.fail_after == 0:
                raise Transient("Kafka does not answer", outage=True)
            self.fail_after -= 1
        self.records.extend(records)

    @property
    def events(self) -> list[TurnRecorded]:
        found = [TURN_EVENT.validate_json(record.value) for record in self.records]
        return [event for event in found if isinstance(event, TurnRecorded)]

    def messages(self) -> list[str]:
        return [message.text for event in self.events for message in event.messages]


def chat_file(folder: Path, turns: int, *, name: str = "chat.jsonl") -> Path:
    path = folder / name
    with path.open("w") as file:
        for number in range(turns):
            for role in ("user", "assistant"):
                file.write(json.dumps({"role": role, "content": f"{role} {number}"}) + "\n")
    return path


def checkpoint(folder: Path, path: Path, target: str = "log-1") -> Checkpoint:
    return Checkpoint.of(folder / "state", path, target)


async def test_records_are_turn_events_keyed_by_chat() -> None:
    log = Log()
    report = await run(DATA / "telegram-full.json", log.publish)
    assert report.turns == len(log.events) == len(log.records)
    assert report.messages == len(log.messages())
    for record, event in zip(log.records, log.events, strict=True):
        assert record.topic == Topics.TURNS
        assert record.key == event.chat.id.encode()


async def test_progress_reaches_the_end(tmp_path: Path) -> None:
    path = chat_file(tmp_path, 50)
    seen: list[Progress] = []
    await run(path, Log().publish, progress=seen.append, batch=7)
    assert [step.turns for step in seen] == [*range(7, 50, 7), 50]
    assert seen[-1] == Progress(path.stat().st_size, path.stat().st_size, 1, 50)


async def test_stopped_and_run_again_nothing_is_doubled(tmp_path: Path) -> None:
    path = chat_file(tmp_path, 50)
    mark = checkpoint(tmp_path, path)
    log = Log(fail_after=3)
    with pytest.raises(Transient):
        await run(path, log.publish, checkpoint=mark, batch=7)
    assert len(log.events) == 21
    log.fail_after = None
    report = await run(path, log.publish, checkpoint=mark, batch=7)
    assert report.already == 42
    assert report.turns == 29
    whole = Log()
    await run(path, whole.publish)
    assert log.records == whole.records
    assert (await run(path, log.publish, checkpoint=mark)).turns == 0


async def test_without_checkpoint_the_ids_are_the_same(tmp_path: Path) -> None:
    path = chat_file(tmp_path, 10)
    first, second = Log(), Log()
    await run(path, first.publish)
    await run(path, second.publish, batch=3)
    assert first.records == second.records


async def test_what_a_file_has_gained_is_added(tmp_path: Path) -> None:
    path = chat_file(tmp_path, 10)
    mark = checkpoint(tmp_path, path)
    log = Log()
    await run(path, log.publish, checkpoint=mark)
    with path.open("a") as file:
        file.write('{"role": "assistant", "content": "PS"}\n{"role": "user", "content": "q"}\n')
    await run(path, log.publish, checkpoint=mark)
    assert log.messages()[-1] == "PS"
    with path.open("a") as file:
        file.write('{"role": "assistant", "content": "a"}\n')
    await run(path, log.publish, checkpoint=mark)
    assert log.messages()[-3:] == ["PS", "q", "a"]
    assert len(log.messages()) == len({m.id for event in log.events for m in event.messages})


async def test_a_file_changed_before_the_checkpoint_is_read_from_the_start(tmp_path: Path) -> None:
    path = chat_file(tmp_path, 10)
    mark = checkpoint(tmp_path, path)
    await run(path, Log().publish, checkpoint=mark)
    path.write_text("\n" + path.read_text())
    log = Log()
    report = await run(path, log.publish, checkpoint=mark)
    assert (report.already, report.turns) == (0, 10)
    path.write_text("\n".join(path.read_text().splitlines()[:7]))
    assert (await run(path, Log().publish, checkpoint=mark)).turns == 3


async def test_another_log_starts_from_nothing(tmp_path: Path) -> None:
    path = chat_file(tmp_path, 3)
    await run(path, Log().publish, checkpoint=checkpoint(tmp_path, path, "log-1"))
    log = Log()
    await run(path, log.publish, checkpoint=checkpoint(tmp_path, path, "log-2"))
    assert len(log.events) == 3


async def test_a_torn_checkpoint_costs_no_more_than_its_last_line(tmp_path: Path) -> None:
    path = chat_file(tmp_path, 9)
    mark = checkpoint(tmp_path, path)
    log = Log(fail_after=2)
    with pytest.raises(Transient):
        await run(path, log.publish, checkpoint=mark, batch=3)
    (state,) = (tmp_path / "state").iterdir()
    state.write_bytes(state.read_bytes()[:-5])
    log.fail_after = None
    report = await run(path, log.publish, checkpoint=mark)
    assert report.already == 6
    assert mark.load()["jsonl-chat"].read == 18
    assert len({record.value for record in log.records}) == 9


async def test_ids_that_cannot_be_ids_are_refused(tmp_path: Path) -> None:
    path = chat_file(tmp_path, 1)
    for options in (Options(chat="a b"), Options(user="")):
        with pytest.raises(ImportRefused, match=r"--(chat|user): "):
            await run(path, Log().publish, options)


async def test_one_id_twice_in_a_turn_is_reported(tmp_path: Path) -> None:
    export = json.loads((DATA / "telegram-chat.json").read_text("utf-8"))
    export["messages"][3]["id"] = 2
    path = tmp_path / "result.json"
    path.write_text(json.dumps(export))
    report = await run(path, Log().publish)
    assert report.turns == 0
    assert any("same id" in found.reason for found in report.first)


async def test_a_large_file_is_read_in_flat_memory(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with path.open("w") as file:
        file.write('{"name": "Mira", "type": "personal_chat", "id": 4242, "messages": [')
        for number in range(2_000):
            message = {
                "id": number,
                "type": "message",
                "date_unixtime": str(1_700_000_000 + number),
                "from_id": "user77" if number % 2 == 0 else "user4242",
                "text": f"{number} " + "tick tock " * 800,
            }
            file.write(("," if number else "") + json.dumps(message))
        file.write("]}")
    size = path.stat().st_size
    assert size > 12_000_000
    turns = 0

    async def publish(records: Sequence[Outgoing]) -> None:
        nonlocal turns
        turns += len(records)

    tracemalloc.start()
    try:
        await run(path, publish, batch=20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert turns == 1_000
    assert peak < size / 3, f"{peak} bytes at the peak for a file of {size}"
