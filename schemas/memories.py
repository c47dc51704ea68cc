"""Saved memories, and their events: commands on `memory.commands.v1`, results on `memory.changes.v1`; key = user id.

A result names entries and changes by id and never carries a text: what a memory says is read from its store.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, TypeAdapter

from schemas import limits
from schemas.base import Count, Id, Model, Timestamp

GLOBAL = "global"
"""The scope that every character of a user sees (M1)."""

_CHARACTER = "character:"

Scope = Annotated[
    str,
    Field(
        max_length=limits.ID_CHARACTERS + len(_CHARACTER),
        pattern=r"^(global|character:[^\s{}\x00-\x1f\x7f\x85]+)$",
        description="`global`, or `character:` and the character's id.",
    ),
]


def scope_of(character: str) -> str:
    """The scope of one character."""
    return f"{_CHARACTER}{character}"


def character_of(scope: str) -> str | None:
    """The character of a scope; None for the global one."""
    return scope.removeprefix(_CHARACTER) if scope.startswith(_CHARACTER) else None


class Author(StrEnum):
    """Who changes a memory (M11)."""

    user = "user"
    character = "character"
    deep_memory = "deep_memory"
    system = "system"


class Source(Model):
    """Where a memory comes from. Without `messages`: from the whole turn."""

    chat: Id
    turn: Id | None = None
    messages: tuple[Id, ...] = Field(default=(), max_length=limits.DRAFT_MESSAGES, fail_fast=True)


def _short(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty")
    if len(text) > limits.MEMORY_CHARACTERS:
        raise ValueError(f"has {len(text)} characters, the limit is {limits.MEMORY_CHARACTERS}")
    return text


Text = Annotated[
    str,
    AfterValidator(_short),
    Field(
        description=f"At most {limits.MEMORY_CHARACTERS} Unicode characters.",
        json_schema_extra={"minLength": 1, "maxLength": limits.MEMORY_CHARACTERS},
    ),
]


class Save(Model):
    """A new entry. `id` is by default derived from the command; `scope` by default the writing character's."""

    op: Literal["save"] = "save"
    id: Id | None = None
    text: Text
    scope: Scope | None = None
    pinned: bool = Field(default=False, description="Only a user pins.")
    source: Source | None = Field(default=None, description="By default that of the command.")


class Update(Model):
    """An entry says something else."""

    op: Literal["update"] = "update"
    id: Id
    text: Text
    source: Source | None = None


class Delete(Model):
    """An entry goes; it stays in the history."""

    op: Literal["delete"] = "delete"
    id: Id
    source: Source | None = None


class Pin(Model):
    """An entry is pinned (M8). Only by a user."""

    op: Literal["pin"] = "pin"
    id: Id


class Unpin(Model):
    """An entry is no longer pinned. Only by a user."""

    op: Literal["unpin"] = "unpin"
    id: Id


class Move(Model):
    """An entry changes its scope. Only by a user."""

    op: Literal["move"] = "move"
    id: Id
    scope: Scope


class Restore(Model):
    """What a change replaced or removed is there again. Only by a user."""

    op: Literal["restore"] = "restore"
    change: int = Field(ge=1, le=limits.WHOLE_NUMBER, description="Number of the change in the history.")


Op = Annotated[
    Save | Update | Delete | Pin | Unpin | Move | Restore,
    Field(discriminator="op"),
]
OP: TypeAdapter[Op] = TypeAdapter(Op)
"""Validates one operation, told apart by `op`."""


class Command(Model):
    """Common to all commands. The same `id` sent twice changes nothing."""

    id: Id
    at: Timestamp
    user_id: Id


class MemoryOps(Command):
    """Operations in their order, all in one step; each is applied or refused on its own, unless `together`.

    `ops` are not validated here: a model's wrong call is refused with a reason, and spoils no other.
    """

    type: Literal["memory.ops"] = "memory.ops"
    by: Author
    character: Id | None = Field(default=None, description="The character that writes, or in whose chat.")
    characters: tuple[Id, ...] = Field(
        default=(),
        max_length=50,
        description="All characters of the chat: whose memories were in its context.",
    )
    source: Source | None = None
    ops: tuple[dict[str, Any], ...] = Field(max_length=limits.MEMORY_OPS, fail_fast=True)
    together: bool = Field(default=False, description="Where one is refused, none is applied.")


class MemoryRollback(Command):
    """What these turns of a chat have written is taken back (M9).

    With `messages` only what came from one of them, or from its turn as a whole. Without `turns`: from any turn.
    """

    type: Literal["memory.rollback"] = "memory.rollback"
    chat_id: Id
    generation: Count
    turns: tuple[Id, ...] | None = None
    messages: tuple[Id, ...] | None = None


class MemoryClear(Command):
    """A scope is cleared for good (M10): its unpinned entries, or its pins where `pinned`.

    Pins are cleared only where there are as many as `expected`.
    """

    type: Literal["memory.clear"] = "memory.clear"
    scope: Scope
    pinned: bool = False
    expected: Count | None = None


class MemorySettings(Command):
    """Whether chats with a character are learned from, and read what was learned (O1)."""

    type: Literal["memory.settings"] = "memory.settings"
    character: Id
    learn_from_chat: bool


class CharacterDeleted(Command):
    """A character is gone; its memories become global (M5)."""

    type: Literal["character.deleted"] = "character.deleted"
    character: Id


MemoryCommand = Annotated[
    MemoryOps | MemoryRollback | MemoryClear | MemorySettings | CharacterDeleted,
    Field(discriminator="type"),
]
MEMORY_COMMAND: TypeAdapter[MemoryCommand] = TypeAdapter(MemoryCommand)
"""Validates one command of `memory.commands.v1`, told apart by `type`."""


class Status(StrEnum):
    """What became of an operation."""

    applied = "applied"
    unchanged = "unchanged"
    """It was so already."""
    echo = "echo"
    """It repeats a memory that was in the context."""
    refused = "refused"


class OpResult(Model):
    """What became of one operation. `reason` says what to do about a refusal; it quotes no text."""

    op: str
    status: Status
    memory_id: Id | None = None
    change: int | None = Field(default=None, description="Number of the change in the history.")
    displaced: Id | None = Field(default=None, description="The entry that had to go for it (M3).")
    reason: str | None = None


class MemoryChanged(Model):
    """What became of a command. `version` is that of the user's memories, and grows with every change."""

    type: Literal["memory.changed"] = "memory.changed"
    id: Id = Field(description="uuid5 of the command's id")
    at: Timestamp
    user_id: Id
    command_id: Id
    command: str
    by: Author
    version: Count
    results: tuple[OpResult, ...] = ()
    kept_pins: Count | None = Field(
        default=None, description="Of a clear: how many pins the scope still has."
    )
    notice: str | None = Field(default=None, description="What the owner should know.")
