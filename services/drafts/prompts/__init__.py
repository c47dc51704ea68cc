"""Prompts for drafts of memories, one file each. A changed text needs a new version."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import yaml

from schemas import limits


class Prompt(NamedTuple):
    """`version` names the prompt and its version; `text` are the instructions."""

    version: str
    text: str


@cache
def load(name: str) -> Prompt:
    """The prompt in `<name>.md`. Raises FileNotFoundError, or KeyError where its head has no version."""
    source = (files(__package__) / f"{name}.md").read_text(encoding="utf-8")
    _, head, text = source.split("---\n", 2)
    text = text.strip().replace("{drafts}", str(limits.DRAFTS))
    text = text.replace("{characters}", str(limits.MEMORY_CHARACTERS))
    return Prompt(f"{name}-{yaml.safe_load(head)['version']}", text)
