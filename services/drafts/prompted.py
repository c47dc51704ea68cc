"""The drafter that asks a language model. Passes tests/contract/test_drafter.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel

from schemas import limits
from services.drafts import prompts
from services.drafts.policy import tidy
from services.drafts.port import Draft, Drafts
from services.llm.port import Complaint, LanguageModel, Request
from services.summaries import material
from services.summaries.port import SourceMessage


class Described(BaseModel):
    """What is made of a description."""

    memories: list[str]


class Remembered(BaseModel):
    """One memory, and the numbers of the messages it was taken from."""

    text: str
    messages: list[int]


class Chosen(BaseModel):
    """What is made of messages."""

    memories: list[Remembered]


class Prompted:
    """See services.drafts.port.Drafter."""

    def __init__(self, model: LanguageModel) -> None:
        self._model = model

    @property
    def model(self) -> str:
        """Name of the language model."""
        return self._model.name

    async def close(self) -> None:
        """Release the model's connections."""
        await self._model.close()

    async def from_description(self, description: str) -> Drafts:
        """See Drafter."""
        prompt = prompts.load("describe")
        completion = await self._model.complete(
            Request(
                instructions=prompt.text,
                data=material.delimited([{"description": description}]),
                answer=Described,
                complaint=lambda told: _complaint(told.memories, least=1),
            )
        )
        drafts = tidy(Draft(text) for text in completion.answer.memories)
        return Drafts(drafts, completion.model, prompt.version, completion.tokens_in, completion.tokens_out)

    async def from_messages(self, messages: Sequence[SourceMessage]) -> Drafts:
        """See Drafter."""
        prompt = prompts.load("remember")
        completion = await self._model.complete(
            Request(
                instructions=prompt.text,
                data=material.of_messages(messages),
                answer=Chosen,
                complaint=lambda told: _complaint([memory.text for memory in told.memories]),
            )
        )
        drafts = tidy(
            Draft(memory.text, _named(memory.messages, messages)) for memory in completion.answer.memories
        )
        return Drafts(drafts, completion.model, prompt.version, completion.tokens_in, completion.tokens_out)


def _complaint(memories: Sequence[str], least: int = 0) -> Complaint | None:
    if len(memories) < least:
        return Complaint("There is no memory. Write down what the description says.", usable=True)
    if len(memories) > limits.DRAFTS:
        told = (
            f"There are {len(memories)} memories, and {limits.DRAFTS} are allowed. Keep the most useful ones."
        )
        return Complaint(told, usable=True)
    for number, text in enumerate(memories, 1):
        if (size := len(text)) > limits.MEMORY_CHARACTERS:
            limit = limits.MEMORY_CHARACTERS
            told = f"Memory {number} has {size} characters, and {limit} are allowed. Make it shorter."
            return Complaint(told, usable=True)
    return None


def _named(numbers: Iterable[int], messages: Sequence[SourceMessage]) -> tuple[str, ...]:
    """Ids of the messages with these numbers; all of them where the model named none that was there."""
    wanted = set(numbers)
    return tuple(message.id for message in messages if message.seq in wanted) or tuple(
        message.id for message in messages
    )
