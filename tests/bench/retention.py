"""What the extractive summariser really gives for a piece of a chat, for the measure of retention.

`extractive(messages, budget)` takes (author, text) pairs and a budget in tokens and returns the rendered summary, made
by the same calls as in the pipeline. LoCoMo, which the figures in docs/benchmarks.md are from, is not part of this
repository.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime

from schemas.chat import Level
from schemas.turns import Role
from services.summaries.extractive import Extractive
from services.summaries.port import SourceMessage
from services.summaries.render import render
from services.tokens.counter import default_counter

_AT = datetime(2026, 1, 1, tzinfo=UTC)


def extractive(messages: Sequence[tuple[str, str]], budget: int) -> str:
    """At most `budget` tokens, rules included (in the pipeline they come on top). The first speaker is the user."""
    count = default_counter()
    source = [
        SourceMessage(
            seq=seq,
            id=f"m{seq}",
            role=Role.user if author == messages[0][0] else Role.assistant,
            author=author,
            text=text,
            tokens=count(text),
            at=_AT,
        )
        for seq, (author, text) in enumerate(messages)
    ]
    room = budget
    while True:
        draft = asyncio.run(Extractive(count).chunk(source, level=Level.balanced, budget=room))
        if draft.tokens_out <= budget or room <= 0:
            return render(draft.body)
        room -= draft.tokens_out - budget
