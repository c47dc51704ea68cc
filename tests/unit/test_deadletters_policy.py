"""What a dead letter says about itself, which ones are selected, and how often one may be replayed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import topics
from schemas.delivery import Record
from services.deadletters import policy
from services.deadletters.policy import Kind, Place, ReplayPolicy, Route, Selection, WrongId
from streams.pipeline import AGENTS

ROUTES = policy.routes(spec.name for spec in topics.wanted())
WINDOW = ROUTES[0]


def letter(
    kind: str = "poison", offset: int = 7, replayed: str | None = None, route: Route = WINDOW
) -> policy.DeadLetter:
    """A dead letter in partition 3."""
    headers = [
        ("traceparent", b"00-1"),
        ("afterturn-kind", kind.encode()),
        ("afterturn-reason", b"text: long"),
    ]
    if replayed is not None:
        headers.append(("afterturn-replayed", replayed.encode()))
    return policy.read(route, Record(route.dead_letters, 3, offset, b"c1", b"{}", tuple(headers), 1_000))


def test_every_agent_has_a_route_of_its_own_name() -> None:
    assert {(route.name, route.topic) for route in ROUTES} == set(AGENTS.items())
    assert Route("chat.turns.v1.window.dlq", "chat.turns.v1", "window", "window") == WINDOW


def test_an_agent_with_two_topics_is_told_apart_by_the_topic() -> None:
    names = [route.name for route in policy.routes(["a.x.dlq", "b.x.dlq", "c.y.dlq", "c"])]
    assert names == ["a.x.dlq", "b.x.dlq", "y"]


def test_a_letter_says_what_its_headers_say() -> None:
    found = letter(replayed="2")
    assert (found.id, found.kind, found.reason, found.replayed) == ("window:3:7", "poison", "text: long", 2)


def test_a_letter_without_headers_is_still_one() -> None:
    found = policy.read(WINDOW, Record(WINDOW.dead_letters, 0, 0, None, None, (), 0))
    assert (found.kind, found.replayed, found.at) == ("unexpected", 0, "")


@pytest.mark.parametrize("id", ["window:3:7", "chat.turns.v1:3:7", "chat.turns.v1.window.dlq:3:7"])
def test_an_id_names_agent_or_topic(id: str) -> None:
    assert policy.place(id, ROUTES) == Place("chat.turns.v1.window.dlq", 3, 7)


@pytest.mark.parametrize(
    "id", ["", "window", "window:3", "window:x:7", "window:3:-1", "window:3:7:1", "gone:3:7"]
)
def test_a_wrong_id_is_refused(id: str) -> None:
    with pytest.raises(WrongId):
        policy.place(id, ROUTES)


@given(st.sampled_from(ROUTES), st.integers(0, 11), st.integers(0, 2**60))
def test_an_id_leads_back_to_its_place(route: Route, partition: int, offset: int) -> None:
    found = policy.read(route, Record(route.dead_letters, partition, offset, None, None, (), 0))
    assert policy.place(found.id, ROUTES) == found.place


@pytest.mark.parametrize(
    ("selection", "routes"),
    [
        (Selection(), len(ROUTES)),
        (Selection(topic="chat.turns.v1"), 1),
        (Selection(topic="chat.turns.v1.window.dlq"), 1),
        (Selection(agent="merge"), 1),
        (Selection(topic="chat.turns.v1", agent="merge"), 0),
        (Selection(places=frozenset([Place("chat.turns.v1.window.dlq", 0, 0)])), 1),
    ],
)
def test_a_selection_reads_only_what_it_needs(selection: Selection, routes: int) -> None:
    assert len(selection.routes(ROUTES)) == routes


@pytest.mark.parametrize(
    ("selection", "handled", "taken"),
    [
        (Selection(), False, True),
        (Selection(), True, False),
        (Selection(handled=True), True, True),
        (Selection(handled=True), False, False),
        (Selection(kind=Kind.poison), False, True),
        (Selection(kind=Kind.parked), False, False),
        (Selection(places=frozenset([letter().place])), True, True),
        (Selection(places=frozenset([letter(offset=8).place])), False, False),
        (Selection(kind=Kind.parked, places=frozenset([letter().place])), False, False),
    ],
)
def test_what_a_selection_takes(selection: Selection, handled: bool, taken: bool) -> None:
    assert selection.takes(letter(), handled) is taken


@pytest.mark.parametrize(("replayed", "allowed"), [(None, True), ("2", True), ("3", False), ("40", False)])
def test_a_replay_has_a_limit(replayed: str | None, allowed: bool) -> None:
    assert (ReplayPolicy(times=3).refusal(letter(replayed=replayed)) is None) is allowed
    assert ReplayPolicy(times=3, force=True).refusal(letter(replayed=replayed)) is None


def test_what_was_left_out_cannot_be_replayed() -> None:
    headers = ((policy.LEFT_OUT, b"3000000"),)
    found = policy.read(WINDOW, Record(WINDOW.dead_letters, 0, 0, None, None, headers, 0))
    assert "too large" in (ReplayPolicy(force=True).refusal(found) or "")


@pytest.mark.parametrize("text", ["", "x", "-1", "1000", "٣", "1.5", " 1"])
def test_a_count_that_nobody_of_ours_wrote_is_zero(text: str) -> None:
    assert policy.count(text) == 0


def test_a_replay_keeps_foreign_headers_and_counts() -> None:
    assert policy.replay_headers(letter()) == [("traceparent", b"00-1"), ("afterturn-replayed", b"1")]
    assert policy.replay_headers(letter(replayed="2"))[-1] == ("afterturn-replayed", b"3")


def test_the_count_survives_becoming_a_dead_letter_again() -> None:
    headers = policy.replay_headers(letter())
    assert list(policy.kept_headers([*headers, ("afterturn-kind", b"forged")])) == headers
