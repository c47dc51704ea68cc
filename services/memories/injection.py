"""Saved memories as the text of a prompt: between marks, one line each.

    <memories>
    Saved memories, newest first. Use their ids to update or delete them.
    - [mem-604185119437028 pinned recent] Theo owes Mira twelve crowns.
    </memories>

A memory's text can neither end its line nor close the mark. The marks tell a model what it knows from memory rather
than from the conversation, and a reader of its answers what it has only repeated.

Tokens are known without encoding the text again. For `o200k_base` they are exact, because no token reaches over the
end of a line, nor from an id that ends in a letter or a digit into what follows it; with another id they are exact or
one or two too many. tests/unit/test_memories_injection.py holds this to the encoder.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

OPEN, CLOSE = "<memories>", "</memories>"
HEADER = "Saved memories, newest first. Use their ids to update or delete them."

OPENING = f"{OPEN}\n{HEADER}"

FRAME_TOKENS = 23
"""Of the marks and the header, with their line ends."""

PINNED_TOKENS, RECENT_TOKENS = 1, 1
"""Of ` pinned` and ` recent` in a label."""

FLAGS = {  # what is pinned, what is recent
    (False, False): "",
    (True, False): " pinned",
    (False, True): " recent",
    (True, True): " pinned recent",
}
_BREAK = re.compile("\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029<>]")
_REST = {**dict.fromkeys((*range(0x20), *range(0x7F, 0xA0)), " "), ord("<"): "&lt;", ord(">"): "&gt;"}


def escaped(text: str) -> str:
    r"""One line without angle brackets: a line break is written `\n`, `<` and `>` as in HTML, a control character as
    a space."""
    text = text.strip()
    if _UNSAFE.search(text) is None:
        return text
    return _BREAK.sub(r"\\n", text).translate(_REST)


def line(memory_id: str, text: str, *, pinned: bool = False, recent: bool = False) -> str:
    """One memory's line, without its end."""
    return f"- [{escaped(memory_id)}{FLAGS[pinned, recent]}] {escaped(text)}"


def measured(memory_id: str, text: str, count: Callable[[str], int]) -> int:
    """Tokens of a memory's line, its end counted, while it is neither pinned nor recent. Stored with the memory."""
    tokens = count(line(memory_id, text) + "\n")
    if memory_id[-1].isalnum():
        return tokens
    # a sign may be one token with the bracket after it, and then is not where a flag follows
    return max(tokens, count(line(memory_id, text, pinned=True) + "\n") - PINNED_TOKENS)


def line_tokens(stored: int, *, pinned: bool, recent: bool) -> int:
    """Tokens of its line as it is now."""
    return stored + PINNED_TOKENS * pinned + RECENT_TOKENS * recent


def render(lines: Sequence[str]) -> str:
    """The text of the prompt; '' without memories."""
    return "\n".join((OPENING, *lines, CLOSE)) if lines else ""
