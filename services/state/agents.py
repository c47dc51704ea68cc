"""Names of the agents that keep a chat: the consumer group's last word, the dead letters' middle one, the outbox's last."""

from __future__ import annotations

WINDOW = "window"
SUMMARISE = "summarise"
MERGE = "merge"
"""What edits of summaries announce is in the outbox of `merge` too: whatever a gateway that died left there is
published with the chat's next merge event."""

OF_CHATS = (WINDOW, SUMMARISE, MERGE)
"""Each has an outbox in every chat."""
