"""The port behind which memories are drafted: `extractive` needs no model, `openai` asks one.

Every implementation passes tests/contract/test_drafter.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from services.summaries.port import SourceMessage


class Draft(NamedTuple):
    """A text that may become a memory, and the ids of the messages it was taken from."""

    text: str
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drafts:
    """At most five drafts of at most 500 characters each, all different, and what they cost."""

    drafts: tuple[Draft, ...]
    model: str
    prompt_version: str
    tokens_in: int
    tokens_out: int


class Drafter(Protocol):
    """Raises Transient where the model did not answer usefully, never anything of the adapter's own."""

    @property
    def model(self) -> str:
        """Name of the model, as booked."""

    async def from_description(self, description: str) -> Drafts:
        """Memories that say what the description says, and nothing else."""

    async def from_messages(self, messages: Sequence[SourceMessage]) -> Drafts:
        """What is worth remembering of these messages, in their order; nothing where nothing is."""

    async def close(self) -> None:
        """Release connections."""
