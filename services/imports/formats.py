"""The known formats, and which of them a file is in."""

from __future__ import annotations

from services.imports import chatgpt, discord, jsonl, sillytavern, telegram
from services.imports.head import Head
from services.imports.port import Format, ImportRefused

FORMATS: tuple[Format, ...] = (sillytavern, discord, chatgpt, telegram, jsonl)


def detect(head: Head) -> Format:
    """By the content alone. Raises ImportRefused."""
    for known in FORMATS:
        if known.claims(head):
            return known
    names = ", ".join(known.name for known in FORMATS)
    fields = ", ".join(sorted(head.fields)[:10])
    raise ImportRefused(f"none of the known formats ({names}); it begins with the fields: {fields or 'none'}")
