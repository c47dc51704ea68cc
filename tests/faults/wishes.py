"""What is asked of a user's memories: by the character in its turns, and by the user from outside.

An id may be of an entry that is there, gone, or never comes to be: what has to become of it is for mind.py to say.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

Op = dict[str, Any]

MIRA = "character:mira"
SCOPES = (MIRA, MIRA, "global")

_FACTS = ("likes the sea", "hat Höhenangst", "กลัวความสูง", 'is called "Ida"', "🐈 is the cat")


@dataclass
class Wishes:
    """All that is asked for one user: texts and ids so far, and commands from outside."""

    user: str
    texts: int = 0
    ids: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    commands: int = 0

    def of_turn(self, dice: random.Random, count: int) -> list[Op]:
        """Operations of a reply."""
        return [self._of_character(dice) for _ in range(count)]

    def _of_character(self, dice: random.Random) -> Op:
        kind = dice.choices(
            ("save", "save nameless", "update", "delete", "echo", "wrong"), (35, 20, 25, 10, 5, 5)
        )[0]
        if kind == "save" or not self.ids:
            return {"op": "save", "id": self._id(), "text": self._text(dice), "scope": dice.choice(SCOPES)}
        if kind == "save nameless":
            return {"op": "save", "text": self._text(dice)}
        if kind == "echo":
            return {"op": "save", "text": dice.choice(self.said)}
        if kind == "wrong":
            return dice.choice(
                [
                    {"op": "pin", "id": self._any(dice)},
                    {"op": "save", "text": "x" * 501},
                    {"op": "save", "text": self._text(dice), "scope": "character:tom"},
                    {"op": "save", "id": self._any(dice), "text": self._text(dice)},
                    {"op": "forget", "id": self._any(dice)},
                ]
            )
        if kind == "update":
            return {"op": "update", "id": self._any(dice), "text": self._text(dice)}
        return {"op": "delete", "id": self._any(dice)}

    def command(self, dice: random.Random, at: str) -> dict[str, Any]:
        """One command of the user."""
        self.commands += 1
        about = {"id": f"{self.user}-k{self.commands}", "at": at, "user_id": self.user}
        if dice.random() < 0.05:
            return {
                "type": "memory.settings",
                **about,
                "character": "mira",
                "learn_from_chat": dice.random() < 0.7,
            }
        return {"type": "memory.ops", **about, "by": "user", "ops": [self._of_user(dice)]}

    def _of_user(self, dice: random.Random) -> Op:
        kind = dice.choices(("save", "pin", "unpin", "update", "delete"), (40, 30, 10, 10, 10))[0]
        if kind == "save" or not self.ids:
            op = {"op": "save", "id": self._id(), "text": self._text(dice), "scope": dice.choice(SCOPES)}
            return {**op, "pinned": True} if dice.random() < 0.3 else op
        if kind == "update":
            return {"op": "update", "id": self._any(dice), "text": self._text(dice)}
        return {"op": kind, "id": self._any(dice)}

    def _id(self) -> str:
        self.ids.append(f"{self.user}-m{len(self.ids)}")
        return self.ids[-1]

    def _any(self, dice: random.Random) -> str:
        """Rather a new one: what is taken back has been written again by then, or not."""
        return dice.choice(self.ids[-6:] if dice.random() < 0.8 else self.ids)

    def _text(self, dice: random.Random) -> str:
        self.texts += 1
        self.said.append(f"{self.user} memory {self.texts}: {dice.choice(_FACTS)}")
        return self.said[-1]
