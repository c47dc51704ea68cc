"""Prompts, one file each: what is asked, and what each level keeps (S3). A changed text needs a new version."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import yaml

from schemas.chat import Level


@dataclass(frozen=True, slots=True)
class Prompt:
    """`version` is part of a summary's provenance. `text` has places for the budget and the level's wishes."""

    version: str
    text: str
    levels: dict[Level, str]

    def fill(self, level: Level, budget: int) -> str:
        """The instructions for one call; `budget` is in tokens."""
        # people and models count words: about three words are four tokens, and less in many scripts
        words = max(20, budget * 3 // 5)
        text = self.text.replace("{level}", self.levels[level].strip())
        return text.replace("{tokens}", str(budget)).replace("{words}", str(words))


@cache
def load(name: str) -> Prompt:
    """The prompt in `<name>.md`. Raises FileNotFoundError, or ValueError where its head is incomplete."""
    source = (files(__package__) / f"{name}.md").read_text(encoding="utf-8")
    _, head, text = source.split("---\n", 2)
    fields = yaml.safe_load(head)
    levels = {Level(level): wish for level, wish in fields["levels"].items()}
    if set(levels) != set(Level):
        raise ValueError(f"{name}.md says nothing about some level")
    return Prompt(f"{name}-{fields['version']}", text.strip(), levels)
