"""Request bodies about saved memories. What a body does not know is an error: a misspelt field is not ignored."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from schemas import limits
from schemas.base import Count, Id
from schemas.memories import Scope, Source

Text = Annotated[
    str,
    StringConstraints(max_length=limits.MEMORY_CHARACTERS, pattern=r"\S"),
    Field(description=f"At most {limits.MEMORY_CHARACTERS} Unicode characters, and not only white space."),
]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NewMemory(_Body):
    """A memory that a user adds."""

    text: Text
    scope: Scope
    pinned: bool = False


class MemoryEdit(_Body):
    """What is to change of a memory; at least one of them."""

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    text: Text | None = None
    pinned: bool | None = None
    scope: Scope | None = None

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.text is None and self.pinned is None and self.scope is None:
            raise ValueError("at least one of text, pinned and scope")
        return self


class ClearScope(_Body):
    """The unpinned memories of a scope, or its pins: then `expected` is how many the first call has kept."""

    scope: Scope
    pinned: bool = False
    expected: Count | None = None


class LearnFromChat(_Body):
    """The switch of O1."""

    learn_from_chat: bool


class ToolCall(_Body):
    """A tool call of a model. `arguments` are a JSON object, or the text of one."""

    id: str | None = Field(default=None, max_length=limits.ID_CHARACTERS)
    name: str = Field(max_length=limits.NAME_CHARACTERS)
    arguments: dict[str, Any] | str


class ToolCalls(_Body):
    """Calls to check. `ops` are those of the same reply that were accepted before."""

    calls: tuple[ToolCall, ...] = Field(min_length=1, max_length=limits.MEMORY_OPS, fail_fast=True)
    character: Id | None = Field(
        default=None, description="Who replies; by default the first of the chat's characters."
    )
    user: Id | None = Field(
        default=None, description="Whose memories; by default the chat's owner. For service tokens."
    )
    ops: tuple[dict[str, Any], ...] = Field(default=(), max_length=limits.MEMORY_OPS, fail_fast=True)

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if len(self.ops) + len(self.calls) > limits.MEMORY_OPS:
            raise ValueError(f"ops and calls together are more than {limits.MEMORY_OPS}")
        return self


class Describe(_Body):
    """What memories are to be generated from. No chat is read."""

    description: Annotated[
        str,
        StringConstraints(max_length=limits.DESCRIPTION_CHARACTERS, pattern=r"\S"),
        Field(description=f"At most {limits.DESCRIPTION_CHARACTERS} Unicode characters."),
    ]
    scope: Scope | None = Field(
        default=None, description="Where they are to go; by default the character's, else global."
    )
    character: Id | None = Field(default=None, description="The character it is about.")


class DraftMessages(_Body):
    """Messages that memories are to be drafted from."""

    messages: tuple[Id, ...] = Field(
        min_length=1,
        max_length=limits.DRAFT_MESSAGES,
        fail_fast=True,
        description="Ids, also of messages that are summarised.",
    )
    mode: Literal["drafts", "originals"] = Field(
        default="drafts", description=f"At most {limits.DRAFTS} drafts, or the messages themselves."
    )
    scope: Scope | None = Field(
        default=None, description="Where they are to go; by default the first character's, else global."
    )


class ChosenDraft(_Body):
    """A draft that the user wants saved, as they have edited it."""

    text: Text
    source: Source | None = Field(default=None, description="As it came with the draft.")


class SaveDrafts(_Body):
    """Drafts to be saved, all or none. They arrive pinned."""

    scope: Scope
    drafts: tuple[ChosenDraft, ...] = Field(min_length=1, max_length=limits.DRAFT_MESSAGES, fail_fast=True)


BODIES: tuple[type[BaseModel], ...] = (
    NewMemory,
    MemoryEdit,
    ClearScope,
    LearnFromChat,
    ToolCalls,
    Describe,
    DraftMessages,
    SaveDrafts,
)
