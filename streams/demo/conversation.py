"""The demo's conversation: Theo and Mira, a restored boat and a lighthouse, in English with some German and Thai.

The text lies beside this module, one JSON object a line and file after file: `user` and `mira` are what was
said (a line without `user` is a greeting); `level` changes the memory detail and `model` with
`context_window` the model, from this turn on; `ops` is what Mira saved or changed in her memories of Theo.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from itertools import count
from typing import Any

from schemas.chat import ChatRef, Level, Surface, UserRef
from schemas.turns import MemoryHints, Message, ModelRef, Role, TokenUsage, TurnRecorded, TurnRef
from services.state import ids
from services.tokens.counter import default_counter

ACTS = ("1-arrival", "2-repairs", "3-logbook", "4-trial", "5-konrad", "6-orre", "7-letters")
START = datetime(2026, 5, 20, 16, 0, tzinfo=UTC)
PAUSE_BETWEEN_TURNS = timedelta(minutes=4)
PAUSE_BETWEEN_ACTS = timedelta(days=14)

CHAT = "demo-mira"
USER = "theo"
CHARACTER = "mira"
PERSONA = "theo-brandt"

FIRST_MODEL = ModelRef(name="deepseek-v3.1", context_window=65_536)
CARD_TOKENS = 850
"""Tokens of the character card and the instructions that a frontend would send before the conversation."""
HISTORY_MESSAGES = 50
"""Messages that the imagined frontend sent along with each prompt: decides the prompt tokens of the usage."""


def _lines() -> Iterator[tuple[int, dict[str, Any]]]:
    """(act counted from 0, turn) in order."""
    folder = files("streams.demo")
    for act, name in enumerate(ACTS):
        text = (folder / f"conversation-{name}.jsonl").read_text("utf-8")
        # not splitlines(): a line separator of Unicode inside a text does not end the turn
        for line in text.split("\n"):
            if line:
                yield act, json.loads(line)


def turns(chat: str = CHAT, user: str = USER, start: datetime = START) -> Iterator[TurnRecorded]:
    """The conversation as the events that a frontend writes; the same arguments give the same events."""
    tokens = default_counter()
    history: list[int] = []
    sequence = count()
    model, now, current_act = FIRST_MODEL, start, 0
    for number, (act, line) in enumerate(_lines()):
        now += PAUSE_BETWEEN_TURNS if act == current_act else PAUSE_BETWEEN_ACTS
        current_act = act
        if "model" in line:
            model = ModelRef(name=line["model"], context_window=line["context_window"])
        messages = [
            Message(
                id=ids.derive("demo-message", chat, next(sequence)),
                role=role,
                author=author,
                text=line[field],
            )
            for field, role, author in (("user", Role.user, user), ("mira", Role.assistant, CHARACTER))
            if field in line
        ]
        sizes = [tokens(message.text) for message in messages]
        prompt = CARD_TOKENS + sum(history[-HISTORY_MESSAGES:]) + sum(sizes[:-1])
        history.extend(sizes)
        yield TurnRecorded(
            id=ids.derive("demo-event", chat, number),
            at=now,
            chat=ChatRef(id=chat, surface=Surface.web, characters=(CHARACTER,), persona=PERSONA),
            user=UserRef(id=user, subscribed=True),
            turn=TurnRef(id=ids.derive("demo-turn", chat, number)),
            messages=tuple(messages),
            model=model,
            usage=TokenUsage(prompt_tokens=prompt, completion_tokens=sizes[-1]),
            memory=MemoryHints(
                level=Level(line["level"]) if "level" in line else None, ops=tuple(line.get("ops", ()))
            ),
        )
