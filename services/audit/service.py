"""Audits a stack that runs or rests: chat after chat, user after user, then the ledger. Memory does not grow with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from redis.asyncio import Redis

from services.audit import read, read_users
from services.audit.archives import Archives
from services.audit.memories import check_user
from services.audit.policy import check, check_deleted
from services.audit.report import Check, Finding, Read, Report, Severity
from services.audit.snapshot import Snapshot
from services.audit.usage import uses
from services.audit.user import UserSnapshot
from services.credits.ledger import Ledger


async def _one(name: str) -> AsyncIterator[str]:
    yield name


async def audit(
    redis: Redis,
    ledger: Ledger | None,
    *,
    chat: str | None = None,
    user: str | None = None,
    at_rest: bool = False,
    progress: Callable[[Read], None] | None = None,
) -> Report:
    """Check all, or of the chats only `chat`, of the users' saved memories only those of `user`: with one of them alone
    nothing of the other kind. `at_rest`: nothing is under way, so that what is unfinished is an error.

    `progress` is called after each chat and user. Raises redis.RedisError, and Transient or Fatal from the ledger.
    """
    report = Report(at_rest=at_rest, ledger=ledger is not None)
    if chat is not None or user is None:
        await _chats(redis, ledger, chat, report, progress)
    if user is not None or chat is None:
        await _users(redis, user, report, progress)
    if ledger is not None:
        await _ledger(ledger, report)
    return report


async def _chats(
    redis: Redis,
    ledger: Ledger | None,
    only: str | None,
    report: Report,
    progress: Callable[[Read], None] | None,
) -> None:
    async for name in read.chats(redis) if only is None else _one(only):
        found = await read.snapshot(redis, name)
        if found is None:
            if only is not None:
                report.add(Finding(name, Check.readable, "there is no such chat"))
            continue
        state, unreadable = found
        for finding in unreadable:
            report.add(finding)
        if state.deleted:
            for finding in check_deleted(state, await read.remains(redis, name), at_rest=report.at_rest):
                report.add(finding)
            report.read.deleted_chats += 1
        else:
            await _chat(redis, ledger, state, report)
        if progress is not None:
            progress(report.read)


async def _chat(redis: Redis, ledger: Ledger | None, state: Snapshot, report: Report) -> None:
    for finding in check(state, at_rest=report.at_rest):
        report.add(finding)
    await _archives(redis, state, report)
    if ledger is not None and report.at_rest:
        await _unbooked(ledger, state, report)
    _count(state, report.read)


async def _users(
    redis: Redis,
    only: str | None,
    report: Report,
    progress: Callable[[Read], None] | None,
) -> None:
    async for name in read_users.users(redis) if only is None else _one(only):
        found = await read_users.user_snapshot(redis, name)
        if found is None:
            if only is not None:
                report.add(Finding("", Check.readable, "this user has no saved memories", user=name))
            continue
        state, unreadable = found
        for finding in (*unreadable, *check_user(state, at_rest=report.at_rest)):
            report.add(finding)
        if report.at_rest:
            for detail in await _of_gone_turns(redis, state):
                report.add(Finding("", Check.taken_back, detail, user=name))
        counts = report.read
        counts.users += 1
        counts.memories += len(state.entries)
        counts.pins += sum(entry.pinned for entry in state.entries)
        counts.changes += len(state.changes)
        if progress is not None:
            progress(counts)


async def _of_gone_turns(redis: Redis, state: UserSnapshot) -> list[str]:
    """Changes that a turn made which its chat has no more. Those of a deleted chat stay, unless asked otherwise."""
    written: dict[tuple[str, str], int] = {}
    for change in state.of_turns():
        source = change.source
        if source is not None and source.turn is not None and not state.ever_pinned(change.memory_id):
            written.setdefault((source.chat, source.turn), change.number)
    if not written:
        return []
    gone = await read.gone_turns(redis, list(written))
    return [
        f"change {written[chat, turn]} stands, its turn {turn} in chat {chat} was taken back"
        for chat, turn in gone
    ]


async def _archives(redis: Redis, state: Snapshot, report: Report) -> None:
    archives = Archives(state)
    async for id, content in read.archived(redis, state.chat, archives.expected):
        if isinstance(content, Finding):
            report.add(content)
            continue
        for finding in archives.chunk(id, content):
            report.add(finding)
    for finding in archives.finish():
        report.add(finding)
    report.read.archived_messages += archives.messages
    report.read.rules += archives.rules


async def _unbooked(ledger: Ledger, state: Snapshot, report: Report) -> None:
    expected = dict(uses(state))
    missing = expected.keys() - await ledger.booked(list(expected))
    for id in sorted(missing):
        # a warning: an endpoint that reports no tokens leaves nothing to book, and a new ledger starts empty
        report.add(
            Finding(
                state.chat,
                Check.usage,
                f"the model's work on summary {expected[id]} is not in the ledger",
                Severity.warning,
            )
        )


async def _ledger(ledger: Ledger, report: Report) -> None:
    stored, seen = await ledger.duplicates()
    report.read.bookings = (await ledger.totals()).uses
    if seen:
        report.add(Finding("", Check.usage, f"readers see {seen} uses more than once"))
    if stored:
        detail = f"{stored} repeated rows are stored; readers see each use once, and a merge removes them"
        report.add(Finding("", Check.usage, detail, Severity.warning))


def _count(state: Snapshot, counts: Read) -> None:
    counts.chats += 1
    counts.messages += state.number("n")
    counts.live += sum(turn.size for turn in state.live)
    counts.pending += sum(turn.size for turn in state.pending)
    counts.pending += sum(chunk.span.messages for chunk in state.chunks)
    counts.chunks += len(state.chunks) + len(state.summarised())
    counts.summaries += len(state.summaries)
    counts.archived_summaries += len(state.merged_away)
