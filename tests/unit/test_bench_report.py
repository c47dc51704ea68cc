"""The pure parts of the benchmarks: percentiles, open loops, tables and where they go."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.bench.load import event, text
from tests.bench.measure import open_loop, percentile
from tests.bench.memory import at_marks
from tests.bench.report import Outcome, Target, markdown, number, rewrite


def outcome(name: str = "window", **how: object) -> Outcome:
    return Outcome(
        name=name,
        how="Two rounds.",
        columns=("loop", "turns/s"),
        rows=[("bare", 12_345.6), ("agent", 0.5)],
        targets=(Target("agent / bare", 0.5, 0.8, at_least=True), Target("p99", 12.0, 15.0, unit="ms")),
        **how,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("share", "value"), [(0.0, 1.0), (0.5, 5.0), (0.51, 6.0), (0.9, 9.0), (0.99, 10.0), (1.0, 10.0)]
)
def test_a_percentile_is_the_nearest_rank(share: float, value: float) -> None:
    assert percentile([10, 9, 8, 7, 6, 5, 4, 3, 2, 1], share) == value


def test_a_percentile_of_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


async def test_an_open_loop_makes_every_call_once_and_does_not_wait_for_earlier_ones() -> None:
    seen: list[int] = []
    all_begun = asyncio.Event()

    async def call(place: int) -> None:
        seen.append(place)
        if len(seen) == 5:
            all_begun.set()
        await all_begun.wait()

    latencies = await open_loop(10_000, 5, call)
    assert sorted(seen) == [0, 1, 2, 3, 4]
    assert len(latencies) == 5
    assert all(latency > 0 for latency in latencies)


async def test_an_open_loop_raises_what_a_call_raises() -> None:
    async def call(place: int) -> None:
        if place == 1:
            raise KeyError("one")

    with pytest.raises(KeyError, match="one"):
        await open_loop(10_000, 3, call)


def test_numbers_have_three_digits_that_count() -> None:
    assert [number(value) for value in (12_345.6, 99.96, 1.234, 0.0)] == ["12,346", "100.0", "1.23", "0.00"]


def test_a_target_tells_whether_it_is_met() -> None:
    first, second = outcome().targets
    assert str(first) == "agent / bare: 0.50 (target ≥ 0.80, **missed**)"
    assert str(second) == "p99: 12.0 ms (target ≤ 15.0 ms, met)"


def test_an_outcome_becomes_a_table() -> None:
    assert markdown(outcome(quick=True, machine="a machine", at="2026-06-01", notes=("a note",))) == (
        "Two rounds. Quick run: too short for a verdict.\n"
        "\n"
        "| loop | turns/s |\n"
        "|---|--:|\n"
        "| bare | 12,346 |\n"
        "| agent | 0.50 |\n"
        "\n"
        "- agent / bare: 0.50 (target ≥ 0.80, **missed**)\n"
        "- p99: 12.0 ms (target ≤ 15.0 ms, met)\n"
        "- a note\n"
        "\n"
        "<sub>2026-06-01, a machine</sub>"
    )


def test_tables_go_between_their_markers_and_the_rest_stays() -> None:
    document = "# A\n<!-- bench:window -->\nold \\1\n<!-- /bench:window -->\n<!-- bench:b -->\nkept\n<!-- /bench:b -->\n"
    once = rewrite(document, [outcome()])
    assert "old" not in once
    assert "| bare | 12,346 |" in once
    assert "<!-- bench:b -->\nkept\n<!-- /bench:b -->" in once
    assert rewrite(once, [outcome()]) == once


def test_an_outcome_without_a_place_is_an_error() -> None:
    with pytest.raises(ValueError, match="bench:other"):
        rewrite("# A", [outcome("other")])


def test_results_come_back_from_a_file_as_they_were() -> None:
    stored = json.loads(json.dumps(outcome(notes=("a note",)).as_dict()))
    assert markdown(Outcome.read(stored)) == markdown(outcome(notes=("a note",)))


def test_memory_is_read_where_each_share_was_done() -> None:
    samples = [(0.0, 10.0), (40.0, 20.0), (50.0, 30.0), (100.0, 25.0)]
    assert at_marks(samples, (0.1, 0.5, 1.0)) == [20.0, 30.0, 25.0]


def test_the_load_has_the_length_that_is_asked_for_and_differs_from_turn_to_turn() -> None:
    assert len(text(3, 900)) == 900
    assert text(3, 900)[5:] != text(4, 900)[5:]
    turn = json.loads(event(7, "c1", usage=True))
    assert [len(message["text"]) for message in turn["messages"]] == [300, 900]
    assert turn["usage"]["completion_tokens"] == 250
