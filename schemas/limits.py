"""Size limits at the door. Over one of them an event is refused as a whole, with the limit in the reason."""

EVENT_BYTES = 1_048_576
"""One event, as bytes on the wire (1 MiB)."""

MESSAGE_BYTES = 262_144
"""The text of one message, as UTF-8 bytes (256 KiB)."""

MESSAGES_PER_TURN = 200
"""Messages of one turn."""

ID_CHARACTERS = 200
"""Any identifier, in Unicode characters."""

NAME_CHARACTERS = 200
"""The name of a model, in Unicode characters."""

BATCH_EVENTS = 500
"""Events in one HTTP request to the gateway."""

CONTEXT_WINDOW_TOKENS = 100_000_000
"""The largest context window that a model may claim."""

USED_TOKENS = 100_000_000
"""Tokens read or written in one use of a model: as much as the largest context window."""

WHOLE_NUMBER = 2**53 - 1
"""The largest whole number that every reader of JSON has exactly (RFC 8259, section 6), and Lua in Redis."""

FIRST_YEAR = 1970
"""No time is negative in milliseconds since 1970 (UTC)."""

LAST_YEAR = 2199
"""The last full year that the ledger's column holds: a use of that time has to be bookable (C1)."""

MEMORY_CHARACTERS = 500
"""A saved memory, in Unicode characters (M3)."""

MEMORIES_UNPINNED = 100
"""Unpinned memories of one scope (M3), and of one context (M6)."""

MEMORIES_PINNED = 20
"""Pinned memories of one scope (M3)."""

MEMORY_OPS = 50
"""Operations on memories in one turn or command."""

MEMORY_RECENT_DAYS = 7
"""So long a memory is marked as recent after its last update (M6)."""

DESCRIPTION_CHARACTERS = 1_000
"""What memories are generated from, in Unicode characters (M7)."""

DRAFT_MESSAGES = 20
"""Messages that memories are drafted from (M7)."""

DRAFTS = 5
"""Drafts of one request (M7)."""
