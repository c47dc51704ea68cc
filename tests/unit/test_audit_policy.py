"""Damage a healthy chat in one way, and see that check find it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from schemas.memories import MemoryRollback
from schemas.summaries import Tier
from services.audit.archives import Archives
from services.audit.policy import check, check_deleted
from services.audit.report import FINDINGS, Check, Finding, Report, Severity
from services.audit.snapshot import ArchivedMessage, Held, Snapshot, TurnEntry, print_of
from services.audit.spans import Piece, breaks
from services.audit.usage import uses
from services.state.ids import chunk_id, derive
from tests.audit_states import AT, LONG_TERM, MESSAGES, Archive, chunk, healthy, name, summary


def findings(snapshot: Snapshot, archive: Archive, *, at_rest: bool = True) -> list[Finding]:
    found = list(check(snapshot, at_rest=at_rest))
    archives = Archives(snapshot)
    for id in archives.expected:
        found += archives.chunk(id, archive.get(id))
    return [*found, *archives.finish()]


def checks(snapshot: Snapshot, archive: Archive) -> set[Check]:
    return {finding.check for finding in findings(snapshot, archive)}


def without(mapping: Any, *names: Any) -> Any:
    return {key: value for key, value in mapping.items() if key not in names}


@pytest.mark.rule("W6", "S2")
def test_a_healthy_chat_has_no_findings() -> None:
    assert findings(*healthy()) == []


def test_an_empty_chat_has_no_findings() -> None:
    empty = Snapshot(
        chat="c",
        fields={},
        messages={},
        live=(),
        pending=(),
        turns={},
        numbers={},
        chunks=(),
        summaries=(),
        merged_away={},
        archive=frozenset(),
        order=(),
        outboxes={},
    )
    assert findings(empty, {}) == []


Damage = Callable[[Snapshot], Snapshot]


def _field(field: str, value: str) -> Damage:
    return lambda s: replace(s, fields={**s.fields, field: value})


def _change_summary(at: int, **changes: Any) -> Damage:
    def damage(s: Snapshot) -> Snapshot:
        changed = s.summaries[at].model_copy(update=changes)
        return replace(s, summaries=(*s.summaries[:at], changed, *s.summaries[at + 1 :]))

    return damage


def _sources(s: Snapshot, *names: str) -> Snapshot:
    merged = s.summaries[1]
    made = merged.provenance.model_copy(update={"source_ids": names})
    return _change_summary(1, provenance=made)(s)


def _later_source(s: Snapshot) -> Snapshot:
    later = s.merged_away[name(17)].model_copy(update={"generation": 1})
    return _field("g", "1")(replace(s, merged_away={**s.merged_away, name(17): later}))


def rollback() -> MemoryRollback:
    return MemoryRollback(id="r", at=AT, user_id="u1", chat_id="c1", generation=0, turns=("t9",))


DAMAGES: dict[str, tuple[Check, Damage]] = {
    "a live turn is lost": (Check.coverage, lambda s: replace(s, live=s.live[1:])),
    "a pending turn is lost": (Check.coverage, lambda s: replace(s, pending=s.pending[:-1])),
    "a turn is live and pending": (Check.coverage, lambda s: replace(s, pending=(*s.pending, s.live[0]))),
    "a waiting chunk is lost": (Check.coverage, lambda s: replace(s, chunks=s.chunks[1:])),
    "a recent summary is lost": (Check.coverage, lambda s: replace(s, summaries=s.summaries[:-1])),
    "a chunk is also pending": (
        Check.chunks,
        lambda s: replace(s, chunks=(*s.chunks, chunk(22))),
    ),
    "live turns are shuffled": (Check.coverage, lambda s: replace(s, live=s.live[::-1])),
    "pending and live are exchanged": (Check.coverage, lambda s: replace(s, live=s.pending, pending=s.live)),
    "nothing is live": (Check.window, lambda s: replace(s, live=(), pending=(*s.pending, *s.live))),
    **{
        f"the counter {field} is wrong": (Check.window, _field(field, "1"))
        for field in ("lf", "lm", "lt", "pf", "pm", "pt", "sm", "tn", "ci")
    },
    "the counter lm is no number": (Check.window, _field("lm", "many")),
    "n is too small": (Check.coverage, _field("n", str(MESSAGES - 2))),
    "n is too large": (Check.coverage, _field("n", str(MESSAGES + 2))),
    "a text is lost": (Check.window, lambda s: replace(s, messages=without(s.messages, MESSAGES - 1))),
    "a text was not removed": (
        Check.window,
        lambda s: replace(
            s, messages={**s.messages, 0: s.messages[MESSAGES - 1]._replace(id="m0", turn="t0")}
        ),
    ),
    "tokens of a message changed": (
        Check.window,
        lambda s: replace(
            s, messages={**s.messages, MESSAGES - 1: s.messages[MESSAGES - 1]._replace(tokens=9)}
        ),
    ),
    "a turn is missing in the table": (Check.turns, lambda s: replace(s, turns=without(s.turns, "t3"))),
    "a turn is there twice": (Check.turns, lambda s: replace(s, turns={**s.turns, "again": TurnEntry(6, 2)})),
    "a turn has another size": (
        Check.turns,
        lambda s: replace(s, turns={**s.turns, "t126": TurnEntry(252, 1)}),
    ),
    "a message is of another turn": (
        Check.turns,
        lambda s: replace(
            s, messages={**s.messages, MESSAGES - 1: s.messages[MESSAGES - 1]._replace(turn="t0")}
        ),
    ),
    "a message id is missing": (Check.turns, lambda s: replace(s, numbers=without(s.numbers, "m17"))),
    "two ids for a message": (Check.turns, lambda s: replace(s, numbers={**s.numbers, "other": 17})),
    "an id has another number": (
        Check.turns,
        lambda s: replace(s, numbers={**s.numbers, "m0": 9, "m9": 0}),
    ),
    "a chunk has another index": (
        Check.chunks,
        lambda s: replace(s, chunks=(s.chunks[0].model_copy(update={"index": 9}), s.chunks[1])),
    ),
    "a chunk has another name": (
        Check.chunks,
        lambda s: replace(s, chunks=(s.chunks[0].model_copy(update={"id": "other"}), s.chunks[1])),
    ),
    "a chunk is of a later generation": (
        Check.chunks,
        lambda s: replace(s, chunks=(s.chunks[0].model_copy(update={"generation": 1}), s.chunks[1])),
    ),
    "a chunk is not in the order": (Check.chunks, lambda s: replace(s, order=("", *s.order[1:]))),
    "the order has one too many": (Check.chunks, lambda s: replace(s, order=(*s.order, name(23)))),
    "the long-term memory is lost": (Check.tiers, lambda s: replace(s, summaries=s.summaries[1:])),
    "a merged summary is lost": (
        Check.tiers,
        lambda s: replace(s, summaries=(s.summaries[0], *s.summaries[2:])),
    ),
    "a source is still in use": (
        Check.tiers,
        lambda s: replace(s, summaries=(*s.summaries, s.merged_away[name(16)])),
    ),
    "tiers are in the wrong order": (Check.tiers, _change_summary(2, tier=Tier.long_term)),
    "a summary is of another chat": (Check.tiers, _change_summary(0, chat_id="c2")),
    "a merge passed a waiting chunk": (
        Check.tiers,
        lambda s: replace(s, summaries=(*s.summaries[:3], summary(Tier.merged, 21, 22))),
    ),
    "a source is not archived": (
        Check.merges,
        lambda s: replace(s, merged_away=without(s.merged_away, name(17))),
    ),
    "sources are not contiguous": (Check.merges, lambda s: _sources(s, name(16), name(17), name(19))),
    "a merge names no sources": (Check.merges, lambda s: _sources(s)),
    "a summary was merged twice": (
        Check.merges,
        lambda s: _sources(s, name(15), name(16), name(17), name(18), name(19)),
    ),
    "an archived summary is in no merge": (
        Check.merges,
        lambda s: replace(s, merged_away={**s.merged_away, "stray": summary(Tier.merged, 16, 19)}),
    ),
    "a merge counts other messages": (
        Check.merges,
        lambda s: _change_summary(1, span=s.summaries[1].span.model_copy(update={"messages": 39}))(s),
    ),
    "a merge names other chunks": (
        Check.merges,
        lambda s: _change_summary(
            1, provenance=s.summaries[1].provenance.model_copy(update={"chunk_ids": (name(16),)})
        )(s),
    ),
    "a chunk is archived that has no summary": (
        Check.archive,
        lambda s: replace(s, archive=s.archive | {name(21)}),
    ),
    "live messages are said to be in chunks": (Check.coverage, _field("co", "248")),
    "the order of turns lacks one": (Check.turns, lambda s: replace(s, turn_order=s.turn_order[1:])),
    "the order of turns is shuffled": (Check.turns, lambda s: replace(s, turn_order=s.turn_order[::-1])),
    "a turn names another message": (
        Check.turns,
        lambda s: replace(s, turns={**s.turns, "t3": s.turns["t3"]._replace(messages=("m6", "m8"))}),
    ),
    "a turn that is gone has written into memories": (
        Check.turns,
        lambda s: replace(s, memory_turns=frozenset({"t127"})),
    ),
    "a deleted message still says something": (
        Check.deleted,
        lambda s: replace(
            s, messages={**s.messages, MESSAGES - 1: s.messages[MESSAGES - 1]._replace(deleted=True)}
        ),
    ),
    "a summary covers what was taken back": (Check.taken_back, _field("n", "200")),
    "an archived summary covers what was taken back": (
        Check.taken_back,
        lambda s: replace(s, merged_away={**s.merged_away, "stray": summary(Tier.merged, 24, 27)}),
    ),
    "a summary is of a later generation": (Check.taken_back, _change_summary(2, generation=1)),
    "a summary of a chunk is older than the chunk": (
        Check.taken_back,
        lambda s: _change_summary(2, generation=1)(_field("g", "1")(s)),
    ),
    "a merge is older than its source": (Check.taken_back, lambda s: _later_source(s)),
    "a timeline tells of other messages": (
        Check.taken_back,
        _change_summary(2, body=summary(Tier.recent, 19, 19).body),
    ),
    "a rollback has not taken effect": (
        Check.rollback,
        lambda s: replace(s, rollbacks={"r": rollback()}),
    ),
    "an outbox is not empty": (Check.outbox, lambda s: replace(s, outboxes={**s.outboxes, "merge": 2})),
}


@pytest.mark.rule("W6", "S2")
@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_is_found(damage: str) -> None:
    snapshot, archive = healthy()
    expected, inflict = DAMAGES[damage]
    assert expected in checks(inflict(snapshot), archive)


@pytest.mark.rule("W7", "S2")
def test_a_group_that_was_taken_apart_is_to_be_merged_again() -> None:
    snapshot, _ = healthy()
    apart = (
        snapshot.summaries[0],
        *(snapshot.merged_away[name(index)] for index in range(16, 20)),
        summary(Tier.merged, 20, 23, sources=tuple(map(name, range(20, 24)))),
    )
    at_rest, running = [
        [finding.detail for finding in check(replace(snapshot, chunks=(), summaries=apart), at_rest=at_rest)]
        for at_rest in (True, False)
    ]
    assert [detail for detail in at_rest if "is due to be merged" in detail]
    assert not [detail for detail in running if "is due to be merged" in detail]
    # a chunk that waits for its summary holds it back
    waiting = replace(snapshot, chunks=(chunk(16),), summaries=(apart[0], *apart[2:]))
    found = [finding.detail for finding in check(waiting, at_rest=True)]
    assert not [detail for detail in found if "is due to be merged" in detail]


@pytest.mark.rule("W7")
def test_a_merge_passes_a_pending_chunk_only_where_that_was_closed_again() -> None:
    snapshot, _ = healthy()
    snapshot = replace(snapshot, fields={**snapshot.fields, "g": "1"})
    passed = "which is still pending"
    for generation, wrong in ((0, True), (1, False)):
        covered = chunk(15).span
        again = chunk(15).model_copy(
            update={
                "generation": generation,
                "id": chunk_id("c1", generation, covered.first_seq, covered.last_seq),
            }
        )
        found = [f.detail for f in check(replace(snapshot, chunks=(again,)), at_rest=False)]
        assert any(passed in detail for detail in found) is wrong


@pytest.mark.rule("W7")
def test_a_live_message_and_its_archive_say_the_same() -> None:
    snapshot, archive = healthy()
    kept = archive[name(5)]
    for message, expected in (
        (kept[0], set[Check]()),
        (kept[0]._replace(text="before"), {Check.taken_back}),
        (kept[0]._replace(deleted=True), {Check.deleted, Check.taken_back}),
        (kept[0]._replace(turn="t0"), {Check.archive}),
    ):
        held = Held(kept[0].id, 7, "t25", print_of(kept[0].text))
        archives = Archives(replace(snapshot, messages={**snapshot.messages, kept[0].seq: held}))
        found = set(archives.chunk(name(5), (message, *kept[1:])))
        assert {finding.check for finding in found} == expected


@pytest.mark.rule("W7")
def test_of_a_deleted_chat_only_the_mark_is_left() -> None:
    snapshot, _ = healthy()
    mark = {"ep": "e", "pa": "0", "of": "9", "g": "1", "v": "9", "dl": "e9"}
    gone = replace(snapshot, fields=mark)
    assert gone.deleted
    assert list(check_deleted(gone, [], at_rest=True)) == []
    found = list(check_deleted(replace(gone, fields={**mark, "cj": "{}"}), ["{c:c1}:s"], at_rest=True))
    assert [finding.check for finding in found] == [Check.deleted] * 2
    full = list(check_deleted(replace(gone, outboxes={"window": 3}), [], at_rest=False))
    assert [(f.check, f.severity) for f in full] == [(Check.outbox, Severity.warning)]


def test_a_full_outbox_is_a_warning_while_the_stack_runs() -> None:
    snapshot, archive = healthy()
    found = findings(replace(snapshot, outboxes={"window": 1}), archive, at_rest=False)
    assert [(finding.check, finding.severity) for finding in found] == [(Check.outbox, Severity.warning)]


@pytest.mark.parametrize("damage", ["lost", "short", "shuffled", "other ids"])
def test_a_damaged_archive_is_found(damage: str) -> None:
    snapshot, archive = healthy()
    kept = archive[name(5)]
    changed: dict[str, tuple[ArchivedMessage, ...]] = {
        "short": kept[:-1],
        "shuffled": kept[::-1],
        "other ids": tuple(message._replace(id="m0") for message in kept),
    }
    content = {**archive, name(5): changed[damage]} if damage in changed else without(archive, name(5))
    found = findings(snapshot, content)
    assert {finding.check for finding in found} == {Check.archive}
    assert all(name(5) in finding.detail for finding in found)


@pytest.mark.rule("S5")
def test_a_rule_that_the_message_does_not_say_is_found_once() -> None:
    snapshot, archive = healthy()
    first = archive[name(0)]
    changed = tuple(m._replace(text="something else") if m.id == "m3" else m for m in first)
    found = findings(snapshot, {**archive, name(0): changed})
    assert [finding.check for finding in found] == [Check.rules]
    assert "something else" not in found[0].detail
    assert "Captain" not in found[0].detail


@pytest.mark.rule("S5")
def test_a_rule_of_a_message_that_is_in_no_chunk_is_found() -> None:
    snapshot, archive = healthy()
    body = snapshot.summaries[1].body.model_copy(
        update={"rules": (snapshot.summaries[0].body.rules[0].model_copy(update={"message_id": "m250"}),)}
    )
    assert checks(_change_summary(1, body=body)(snapshot), archive) == {Check.rules, Check.taken_back}


@pytest.mark.rule("S6")
def test_an_edited_rule_and_what_was_merged_from_it_is_not_checked() -> None:
    snapshot, archive = healthy()
    rule = snapshot.summaries[0].body.rules[0].model_copy(update={"quote": "A person wrote this."})
    edited = snapshot.merged_away[name(0)]
    body = edited.body.model_copy(update={"rules": (rule,)})
    edit = {"body": body, "edited_at": AT, "edited_by": "u1", "version": 2}
    merged_away = {**snapshot.merged_away, name(0): edited.model_copy(update=edit)}
    for key, item in merged_away.items():
        if item.body.rules and key != name(0):
            merged_away[key] = item.model_copy(
                update={"body": item.body.model_copy(update={"rules": (rule,)})}
            )
    changed = _change_summary(0, body=body)(replace(snapshot, merged_away=merged_away))
    assert findings(changed, archive) == []
    # the same rule without anyone's edit is wrong
    unedited = {**merged_away, name(0): edited.model_copy(update={"body": body})}
    assert checks(replace(changed, merged_away=unedited), archive) == {Check.rules}


@pytest.mark.rule("W8", "C1")
def test_a_fork_owes_nothing_for_what_it_took_over() -> None:
    snapshot, _ = healthy(model="deepseek-v3.1")
    made = snapshot.summaries[2].provenance.model_copy(update={"chat_id": "c0"})
    forked = replace(snapshot, summaries=(snapshot.summaries[2].model_copy(update={"provenance": made}),))
    assert derive("usage", "chunk", "c0", name(20), 1) in dict(uses(forked))


@pytest.mark.rule("C1")
def test_every_paid_summary_has_a_use() -> None:
    assert list(uses(healthy()[0])) == []
    snapshot, _ = healthy(model="deepseek-v3.1")
    expected = dict(uses(snapshot))
    long_term = snapshot.summaries[0]
    assert len(expected) == len(snapshot.summaries) + len(snapshot.merged_away)
    for stage, id, version in (
        ("chunk", name(0), 1),
        ("merge", snapshot.summaries[1].id, 1),
        ("merge", long_term.id, 1),
        ("compress", long_term.id, 2),
    ):
        assert expected[derive("usage", stage, "c1", id, version)] == id
    assert long_term.span.messages == LONG_TERM * 10


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([], ["messages 0..9 missing after the beginning"]),
        ([(0, 9)], []),
        ([(5, 9), (0, 4)], []),
        ([(0, 4), (6, 9)], ["message 5 missing between"]),
        ([(0, 5), (5, 9)], ["message 5 twice"]),
        ([(0, 9), (2, 3), (4, 4)], ["messages 2..3 twice", "message 4 twice"]),
        ([(0, 8)], ["message 9 missing"]),
        ([(0, 11)], ["messages 10..11 never"]),
        ([(0, 9), (5, 4)], ["ends before it begins"]),
    ],
)
def test_breaks(pieces: list[tuple[int, int]], expected: list[str]) -> None:
    found = list(breaks([Piece(first, last, "here") for first, last in pieces], 0, 10))
    assert len(found) == len(expected)
    assert all(part in detail for part, detail in zip(expected, found, strict=True))


def test_a_report_keeps_a_bounded_number_of_findings() -> None:
    report = Report(at_rest=True, ledger=False)
    report.add(Finding("c", Check.outbox, "x", Severity.warning))
    assert report.ok
    for number in range(FINDINGS + 5):
        report.add(Finding("c", Check.coverage, str(number)))
    assert (len(report.findings), report.errors, report.warnings, report.ok) == (
        FINDINGS,
        FINDINGS + 5,
        1,
        False,
    )
    assert report.as_dict()["errors"] == FINDINGS + 5
