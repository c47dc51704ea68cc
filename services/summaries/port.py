"""The port behind which a summariser works: `extractive` needs no model, `openai` asks one.

Every implementation passes tests/contract/test_summariser.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Protocol

from schemas.chat import Level
from schemas.summaries import Body, Summary, Tier
from schemas.turns import Role


class SourceMessage(NamedTuple):
    """A message as a summariser reads it. `seq` counts the chat's messages from 0; `tokens` are of `text`."""

    seq: int
    id: str
    role: Role
    author: str
    text: str
    tokens: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Draft:
    """A summary before it is stored, and what it cost. A draft costs at most `budget` tokens when rendered,
    not counting its rules, which are never shortened (S5)."""

    body: Body
    model: str
    prompt_version: str
    tokens_in: int
    tokens_out: int


class Summariser(Protocol):
    """Raises Transient where the model did not answer usefully, never anything of the adapter's own."""

    @property
    def model(self) -> str:
        """Name of the model, as booked and kept in the provenance."""

    async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
        """A recent summary of whole turns, in at most `budget` tokens."""

    async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
        """One summary in place of several contiguous ones, oldest first. All rules of the sources are passed on.

        A long-term memory that others join comes first and without its timeline, which stays as it is: the draft
        adds to it, and brings promises, facts and state up to date.
        """

    async def compress(self, source: Summary, *, level: Level, budget: int) -> Draft:
        """The same memory, shorter: old timeline lines become short lines per period (S4). Rules stay."""

    async def close(self) -> None:
        """Release connections."""
