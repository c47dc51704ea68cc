"""The port behind which a language model works: `complete(request) -> completion`, with what it cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from pydantic import BaseModel

from services.failures import Transient

Answer = TypeVar("Answer", bound=BaseModel)


class Complaint(NamedTuple):
    """What is wrong with a valid answer, as the model is told. `usable`: better than no answer."""

    text: str
    usable: bool


@dataclass(frozen=True, slots=True)
class Request(Generic[Answer]):
    """What is asked.

    `instructions` are ours; `data` is material to work on and never an instruction. The answer is JSON that
    validates as `answer`. `complaint` looks at a valid answer: what it returns (None: nothing) is told to the model
    once, and the second answer counts, unless it is the one that cannot be used.
    """

    instructions: str
    data: str
    answer: type[Answer]
    complaint: Callable[[Answer], Complaint | None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Completion(Generic[Answer]):
    """A valid answer. Tokens are those of all attempts, as the endpoint reported them, or counted where it did not."""

    answer: Answer
    model: str
    tokens_in: int
    tokens_out: int


class Unanswered(Transient):
    """No usable answer. The tokens are what the attempts cost all the same."""

    def __init__(self, reason: str, *, outage: bool = False, tokens_in: int = 0, tokens_out: int = 0) -> None:
        super().__init__(reason, outage=outage)
        self.tokens_in = tokens_in
        self.tokens_out = tokens_out


class LanguageModel(Protocol):
    """Raises Unanswered, never anything of the adapter's own."""

    @property
    def name(self) -> str:
        """Name of the model, as booked."""

    async def complete(self, request: Request[Answer]) -> Completion[Answer]:
        """One answer, after one repair attempt at most."""

    async def close(self) -> None:
        """Release connections."""
