"""What a benchmark found, and how it becomes a table of docs/benchmarks.md."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """A figure and its bound. `at_least` False: the figure must not exceed the bound."""

    what: str
    value: float
    bound: float
    at_least: bool = False
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the bound holds."""
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    def __str__(self) -> str:
        sign, unit = "≥" if self.at_least else "≤", f" {self.unit}" if self.unit else ""
        verdict = "met" if self.met else "**missed**"
        return (
            f"{self.what}: {number(self.value)}{unit} (target {sign} {number(self.bound)}{unit}, {verdict})"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """One benchmark's figures. `name` is also the name of its place in the document; `how` says what was run in one
    sentence. `rows` hold numbers, or text that is shown as it is."""

    name: str
    how: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    targets: Sequence[Target] = ()
    quick: bool = False
    machine: str = ""
    at: str = ""
    notes: Sequence[str] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        """For a file of results."""
        return asdict(self)

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> Outcome:
        """From `as_dict`."""
        return cls(**{**stored, "targets": tuple(Target(**target) for target in stored["targets"])})


def number(value: float) -> str:
    """Three digits that count, thousands apart."""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    magnitude = abs(value)
    if magnitude >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if magnitude >= 10 else f"{value:.2f}"


def markdown(outcome: Outcome) -> str:
    """Sentence, table, targets, and where and when it was measured."""
    lines = [outcome.how + (" Quick run: too short for a verdict." if outcome.quick else ""), ""]
    lines.append("| " + " | ".join(outcome.columns) + " |")
    lines.append("|" + "|".join("---" if at == 0 else "--:" for at in range(len(outcome.columns))) + "|")
    for row in outcome.rows:
        lines.append("| " + " | ".join(c if isinstance(c, str) else number(c) for c in row) + " |")
    for each in (*map(str, outcome.targets), *outcome.notes):
        lines += ["", f"- {each}"] if lines[-1].startswith("|") else [f"- {each}"]
    if outcome.machine:
        lines += ["", f"<sub>{outcome.at}, {outcome.machine}</sub>"]
    return "\n".join(lines)


def rewrite(document: str, outcomes: Sequence[Outcome]) -> str:
    """The document with each outcome between its markers, `<!-- bench:NAME -->` and `<!-- /bench:NAME -->`.

    What has no outcome stays as it is. Raises ValueError for an outcome without a place.
    """
    for outcome in outcomes:
        begin, end = f"<!-- bench:{outcome.name} -->", f"<!-- /bench:{outcome.name} -->"
        place = re.compile(re.escape(begin) + ".*?" + re.escape(end), re.DOTALL)
        if not place.search(document):
            raise ValueError(f"the document has no place {begin} ... {end}")
        text = f"{begin}\n{markdown(outcome)}\n{end}"
        document = place.sub(lambda _, text=text: text, document)  # type: ignore[misc]
    return document
