"""The audit on a real Redis: a healthy chat passes, damage of every kind of key is found, memory stays flat."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis

from services.audit import read
from services.audit.report import Check, Read, Report, Severity
from services.audit.service import audit
from services.audit.usage import uses
from services.credits.clickhouse import Connection
from services.credits.ledger import ClickHouseLedger
from services.state import keys
from tests.audit_states import CHAT, MESSAGES, healthy, name, store
from tests.clickhouse import open_ledger, row

K = keys.ChatKeys.of(CHAT)


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[ClickHouseLedger]:
    _, ledger = await open_ledger(f"chdb:{tmp_path}/ledger")
    yield ledger
    await ledger.close()


def found(report: Report) -> set[Check]:
    return {finding.check for finding in report.findings}


async def test_what_is_read_is_what_was_written(redis: Redis) -> None:
    snapshot, archive = healthy()
    await store(redis, snapshot, archive)
    result = await read.snapshot(redis, CHAT)
    assert result is not None
    state, unreadable = result
    assert unreadable == []
    assert set(state.chunks) == set(snapshot.chunks)
    assert {s.id: s for s in state.summaries} == {s.id: s for s in snapshot.summaries}
    assert replace(state, chunks=(), summaries=()) == replace(snapshot, chunks=(), summaries=())
    pages = {id: content async for id, content in read.archived(redis, CHAT, archive)}
    assert pages == archive


async def test_a_healthy_stack_passes_and_says_what_it_read(redis: Redis, ledger: ClickHouseLedger) -> None:
    await store(redis, *healthy())
    await ledger.book([row(1), row(2)])
    seen: list[int] = []
    report = await audit(redis, ledger, at_rest=True, progress=lambda counts: seen.append(counts.chats))
    assert report.findings == []
    assert report.ok
    assert seen == [1]
    assert report.read == Read(
        chats=1,
        messages=MESSAGES,
        live=8,
        pending=26,
        chunks=24,
        summaries=4,
        archived_summaries=25,
        archived_messages=220,
        rules=1,
        bookings=2,
    )


async def test_an_empty_stack_passes(redis: Redis) -> None:
    report = await audit(redis, None, at_rest=True)
    assert (report.ok, report.read) == (True, Read())


async def test_one_chat_can_be_asked_for(redis: Redis) -> None:
    await store(redis, *healthy())
    await redis.hset(keys.ChatKeys.of("other").window, mapping={"n": 4, "g": 0})
    assert (await audit(redis, None, chat=CHAT)).ok
    assert not (await audit(redis, None, chat="other")).ok
    everything = await audit(redis, None)
    assert everything.read.chats == 2
    assert {finding.chat for finding in everything.findings} == {"other"}
    unknown = await audit(redis, None, chat="nobody")
    assert (unknown.ok, unknown.findings[0].detail) == (False, "there is no such chat")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("HDEL", K.messages, str(MESSAGES - 1)), Check.window),
        (("HSET", K.messages, str(MESSAGES - 1), "secret words"), Check.readable),
        (("LPOP", K.live), Check.coverage),
        (("RPUSH", K.live, "secret words"), Check.readable),
        (("RPOP", K.pending), Check.coverage),
        (("HDEL", K.turns, "t0"), Check.turns),
        (("HSET", K.turns, "t0", "secret"), Check.readable),
        (("HDEL", K.message_ids, "m0"), Check.turns),
        (("HDEL", K.chunks, name(21)), Check.coverage),
        (("HSET", K.chunks, name(21), '{"secret": 1}'), Check.readable),
        (("HDEL", K.summaries, name(20)), Check.coverage),
        (("HSET", K.summaries, name(20), "secret"), Check.readable),
        (("HDEL", K.archived_summaries, name(3)), Check.merges),
        (("HSET", K.archived_summaries, name(3), "secret"), Check.readable),
        (("HDEL", K.archive, name(3)), Check.archive),
        (("HSET", K.archive, name(3), "secret"), Check.readable),
        (("HSET", K.archive, name(3), zlib.compress(b'[["secret"]]')), Check.readable),
        (("HSET", K.archive, name(3), zlib.compress(json.dumps([]).encode())), Check.archive),
        (("LSET", K.archive_order, 3, name(4)), Check.chunks),
        (("HINCRBY", K.window, "lm", 1), Check.window),
        (("HINCRBY", K.window, "n", 1), Check.coverage),
        (("HSET", keys.outbox(CHAT, "merge"), "field", "secret"), Check.outbox),
    ],
)
async def test_damage_is_found_and_no_text_is_told(
    redis: Redis, command: tuple[str, ...], expected: Check
) -> None:
    await store(redis, *healthy())
    await redis.execute_command(*command)
    report = await audit(redis, None, at_rest=True)
    assert not report.ok
    assert expected in found(report)
    assert "secret" not in json.dumps(report.as_dict())


@pytest.mark.rule("C2")
async def test_a_use_that_is_missing_in_the_ledger_is_a_warning_at_rest(
    redis: Redis, ledger: ClickHouseLedger
) -> None:
    snapshot, archive = healthy(model="deepseek-v3.1")
    await store(redis, snapshot, archive)
    ids = list(dict(uses(snapshot)))
    await ledger.book([row(number, id=id) for number, id in enumerate(ids[1:])])
    report = await audit(redis, ledger, at_rest=True)
    assert report.ok
    assert [(f.check, f.severity) for f in report.findings] == [(Check.usage, Severity.warning)]
    assert dict(uses(snapshot))[ids[0]] in report.findings[0].detail
    # while the stack runs, the use may still be on its way
    assert (await audit(redis, ledger, at_rest=False)).findings == []


@pytest.mark.rule("C2")
async def test_repeated_rows_are_told_and_a_view_that_shows_them_is_an_error(
    redis: Redis, ledger: ClickHouseLedger
) -> None:
    connection: Connection = ledger._connection
    await ledger.book([row(1)])
    await ledger._insert([row(1)])
    report = await audit(redis, ledger)
    assert [(f.check, f.severity) for f in report.findings] == [(Check.usage, Severity.warning)]
    await connection.command("CREATE OR REPLACE VIEW usage AS SELECT * FROM credits")
    report = await audit(redis, ledger)
    assert not report.ok
    assert Severity.error in {finding.severity for finding in report.findings}
