"""Answers of the routes on saved memories: what a panel shows, what became of a change, and drafts."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from schemas import limits
from schemas.base import Count, Id, Model, Timestamp
from schemas.memories import Author, MemoryChanged, Scope, Source, Status


class SavedMemory(Model):
    """One saved memory. `version` grows with every change of it."""

    id: Id
    scope: Scope
    text: str
    pinned: bool
    recent: bool = Field(description=f"Updated in the last {limits.MEMORY_RECENT_DAYS} days (M6).")
    by: Author = Field(description="Who wrote its text.")
    character: Id | None = Field(description="The character that wrote it, or in whose chat it was written.")
    created_at: Timestamp
    created_by: Author
    updated_at: Timestamp
    version: Count
    source: Source | None = Field(description="The messages it comes from.")


class ScopeView(Model):
    """How full a scope is (M3)."""

    scope: Scope
    pinned: Count
    unpinned: Count
    pinned_limit: Count = limits.MEMORIES_PINNED
    unpinned_limit: Count = limits.MEMORIES_UNPINNED


class MemoriesView(Model):
    """Answer of GET /v1/users/{user}/memories: pins first, each newest first."""

    user_id: Id
    version: Count = Field(description="Grows with every change of the user's memories.")
    memories: tuple[SavedMemory, ...]
    scopes: tuple[ScopeView, ...] = Field(
        description="Those asked for; else all that have an entry, and global."
    )
    learn_from_chat: bool | None = Field(
        description="Of the character asked for: whether its chats are learned from (O1); null: none was."
    )
    learning_off: tuple[Id, ...] = Field(description="All characters whose chats are not learned from.")


class MemoryWritten(Model):
    """What became of a change. A repeat of the request has the same answer."""

    command_id: Id
    version: Count
    status: Status = Field(description="applied, or unchanged: it was so already.")
    memory: SavedMemory | None = Field(description="The memory as it is now; null: it is gone.")
    change: int | None = Field(description="Number of the newest of these changes in the history.")
    displaced: Id | None = Field(description="The entry that had to go for it (M3); the history has it.")


class CommandPending(Model):
    """The command is in the log and will take effect; its result was not there in time."""

    command_id: Id
    result: str = Field(description="Where the result will be: a path of this API.")


class CommandResult(Model):
    """Answer of GET /v1/users/{user}/memory-commands/{command}."""

    command_id: Id
    result: MemoryChanged


class WordingView(Model):
    """A text of the history, and who wrote it when."""

    text: str
    by: Author
    character: Id | None
    at: Timestamp
    source: Source | None


class ChangeView(Model):
    """One change in the history (M11). Texts that were cleared or taken back are gone from it."""

    number: Count
    at: Timestamp
    action: str = Field(
        description="created, edited, deleted, displaced, restored, cleared, pinned, unpinned, moved, globalised, "
        "taken_back, learning_on or learning_off."
    )
    memory_id: Id | None = Field(description="null: it changed a setting.")
    by: Author
    character: Id | None
    source: Source | None
    command_id: Id
    scope: Scope
    from_scope: Scope | None
    before: WordingView | None = Field(description="What it replaced or removed.")
    after: WordingView | None = Field(description="What it put there.")
    taken_back: bool
    restorable: bool = Field(description="Whether what it replaced or removed can be restored.")


class HistoryView(Model):
    """Answer of GET /v1/users/{user}/memories/history, the newest change first."""

    user_id: Id
    changes: tuple[ChangeView, ...]
    next: Count | None = Field(description="`before` of the next page; null: this is the last one.")


class Cleared(Model):
    """Answer of POST /v1/users/{user}/memories/clear (M10)."""

    command_id: Id
    version: Count
    scope: Scope
    cleared: Count
    kept_pins: Count = Field(
        description="Pins that the scope still has; a second call with this number clears them."
    )


class CharacterSettings(Model):
    """Of one user and one character."""

    character: Id
    learn_from_chat: bool = Field(
        description="Off: nothing is saved from its chats, and nothing saved is read (O1)."
    )
    deleted: bool = Field(description="The character was deleted; its memories are global (M5).")


class CharacterRemoved(Model):
    """Answer of DELETE /v1/users/{user}/characters/{character} (M5)."""

    command_id: Id
    version: Count
    memories: Count = Field(description="Entries that the character had.")
    notice: str | None = Field(description="What the owner should know: what found no room.")


class MisfitView(Model):
    """Why a draft cannot be saved as it is."""

    field: str
    message: str
    limit: int


class DraftView(Model):
    """A draft. Saved, it is pinned."""

    text: str
    characters: Count = Field(description="Unicode characters of the text.")
    fits: bool = Field(description="Whether it can be saved, after those before it that can.")
    errors: tuple[MisfitView, ...]
    source: Source | None = Field(description="Send it along when the draft is saved.")


class DraftsView(Model):
    """Drafts, and how much room their scope has."""

    scope: Scope
    pinned: Count
    pinned_limit: Count = limits.MEMORIES_PINNED
    model: str | None = Field(description="What wrote them; null: they are the messages themselves.")
    drafts: tuple[DraftView, ...]


class DraftsSaved(Model):
    """Answer of POST /v1/users/{user}/memories/save, in the order of the drafts."""

    command_id: Id
    version: Count
    memories: tuple[SavedMemory, ...]


class CallChecked(Model):
    """One tool call. Where it is not `ok`, `error` is what to tell the model."""

    id: str | None = Field(description="As in the request.")
    name: str
    ok: bool
    error: str | None
    status: Status | None = Field(
        description="echo, unchanged: it says what is there already. Its `op` is sent all the same."
    )
    memory_id: Id | None
    op: dict[str, Any] | None = Field(description="For `memory.ops` of the turn event.")


class CallsChecked(Model):
    """Answer of POST /v1/chats/{chat}/memory-ops, in the order of the calls. Nothing has been changed."""

    calls: tuple[CallChecked, ...]


class ToolFunction(Model):
    """A function as a model is told about it."""

    name: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema.")


class Tool(Model):
    """A tool in the format of the chat completion APIs."""

    type: Literal["function"] = "function"
    function: ToolFunction


class Tools(Model):
    """Answer of GET /v1/tools/memory."""

    tools: tuple[Tool, ...]
