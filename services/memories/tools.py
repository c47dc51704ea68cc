"""The tools with which a character keeps its memories while it replies, and what a call of one asks for. Pure."""

from __future__ import annotations

import json
from typing import Any

from schemas import limits
from schemas.memories import GLOBAL, scope_of
from schemas.saved_memories import Tool, ToolFunction, Tools

_TEXT = {
    "type": "string",
    "description": f"One fact in one or two complete sentences that are understood alone: names instead of pronouns, "
    f"dates instead of 'today' or 'next week'. At most {limits.MEMORY_CHARACTERS} characters.",
}
_ID = {
    "type": "string",
    "description": "The id in the square brackets before the memory, such as mem-4f1d09a2c7be.",
}


def _tool(name: str, description: str, properties: dict[str, Any], required: list[str]) -> Tool:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return Tool(function=ToolFunction(name=name, description=description, parameters=parameters))


TOOLS = Tools(
    tools=(
        _tool(
            "save_memory",
            "Save a lasting fact for later conversations: who the user is and what they like or cannot stand, how "
            "you stand to each other, promises, plans with their dates, what happened, corrections. Not for moods of "
            "the moment, small talk, or what is among your memories already. If a memory has become wrong, update it "
            "instead of saving another one. What the user asks you to remember, save.",
            {
                "text": _TEXT,
                "scope": {
                    "type": "string",
                    "enum": ["character", "global"],
                    "description": "character (the default): only you will know it. global: every character of this "
                    "user will; for facts about the user that concern all of them, such as their name.",
                },
            },
            ["text"],
        ),
        _tool(
            "update_memory",
            "Replace the text of one of your memories, because something has changed or was corrected. Write the "
            "whole memory as it is to read from now on. Pinned memories and those that the user wrote cannot be "
            "changed.",
            {"id": _ID, "text": _TEXT},
            ["id", "text"],
        ),
        _tool(
            "delete_memory",
            "Delete one of your memories that is no longer true, or that the user asks you to forget. Pinned memories "
            "and those that the user wrote cannot be deleted.",
            {"id": _ID},
            ["id"],
        ),
    )
)
"""In the format of the chat completion APIs (OpenAI function calling)."""

_OPS = {"save_memory": "save", "update_memory": "update", "delete_memory": "delete"}


def operation(
    name: str, arguments: dict[str, Any] | str, character: str | None, new_id: str
) -> dict[str, Any] | str:
    """The operation that a call asks for, `new_id` for what it saves; or what is wrong with the call, for the model."""
    op = _OPS.get(name)
    if op is None:
        return f"name: there is no such tool; there are {', '.join(_OPS)}"
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return "arguments: are not JSON"
    if not isinstance(arguments, dict):
        return "arguments: are not a JSON object"
    if op == "delete":
        return {"op": op, "id": arguments.get("id")}
    text = arguments.get("text")
    if op == "update":
        return {"op": op, "id": arguments.get("id"), "text": text}
    scope = _scope(arguments.get("scope"), character)
    if scope is None:
        return "scope: is neither character nor global"
    return {"op": op, "id": new_id, "text": text, "scope": scope}


def _scope(named: Any, character: str | None) -> str | None:
    own = scope_of(character) if character is not None else GLOBAL
    if named in (None, "", "character", own):
        return own
    return GLOBAL if named == GLOBAL else None
