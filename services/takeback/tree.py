"""Which summaries go, and which come back, when something that they cover is taken back. Pure.

A summary is touched when its span is. A touched merged or long-term summary is taken apart: its sources, which are
archived, take its place, and those that are touched are taken apart in turn, down to the chunks. What is not touched
stays as it is, a person's edits included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from schemas.summaries import Tier
from services.failures import Poison
from services.takeback.values import Stored

Touched = Callable[[int, int], bool]
"""Whether a span (first and last number) is touched."""


@dataclass(slots=True)
class Apart:
    """`gone` are summaries that were in use, `forgotten` names in the archive, `back` summaries by the name that they
    had there, `chunks` the touched summaries of chunks."""

    gone: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)
    back: dict[str, Stored] = field(default_factory=dict)
    chunks: list[Stored] = field(default_factory=list)


def wanted(in_use: Mapping[str, Stored], archived: Mapping[str, Stored], touched: Touched) -> list[str]:
    """Names in the archive that `take_apart` will ask for and that are not among `archived` yet."""
    names: list[str] = []
    stack = [each for each in in_use.values() if touched(each.first, each.last)]
    while stack:
        for name in stack.pop().sources:
            source = archived.get(name)
            if source is None:
                names.append(name)
            elif touched(source.first, source.last):
                stack.append(source)
    return names


def take_apart(in_use: Mapping[str, Stored], archived: Mapping[str, Stored], touched: Touched) -> Apart:
    """Raises Poison where the archive lacks a source: the state is damaged, waiting will not bring it back."""
    apart = Apart()

    def visit(summary: Stored) -> None:
        if summary.tier is Tier.recent:
            apart.chunks.append(summary)
            return
        for name in summary.sources:
            source = archived.get(name)
            if source is None:
                raise Poison(
                    f"chat.id: the archive of this chat lacks the summary {name}; its state is damaged"
                )
            apart.forgotten.append(name)
            if touched(source.first, source.last):
                visit(source)
            else:
                apart.back[name] = source

    for summary in in_use.values():
        if touched(summary.first, summary.last):
            apart.gone.append(summary.id)
            visit(summary)
    apart.chunks.sort(key=lambda chunk: chunk.first)
    return apart
