"""Summaries, and their event on `chat.summaries.v1` (key = chat id).

A body is structured, so that merging can pass on what has to survive word for word; the text of a prompt is
rendered from it (services/summaries/render.py).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from schemas.base import Count, Id, Model, Timestamp
from schemas.chat import Level
from schemas.chunks import Span


class Tier(StrEnum):
    """Four recent summaries become a merged one, four merged ones part of the one long-term memory (S2)."""

    recent = "recent"
    merged = "merged"
    long_term = "long_term"


class TimelineLine(Model):
    """What happened, in one line, and the numbers of the first and last message it was taken from."""

    text: str
    first_seq: Count
    last_seq: Count


class Rule(Model):
    """A correction or a rule of the user, word for word, with the message that says it (S5).

    `message_id` is None where a person wrote the rule into the summary.
    """

    quote: str
    message_id: Id | None = None
    author: str = ""


class Body(Model):
    """The content of a summary, each part oldest first."""

    timeline: tuple[TimelineLine, ...] = Field(default=(), fail_fast=True)
    promises: tuple[str, ...] = Field(default=(), fail_fast=True)
    facts: tuple[str, ...] = Field(default=(), fail_fast=True, description="Exact names and numbers.")
    state: tuple[str, ...] = Field(
        default=(), fail_fast=True, description="What holds at the end of the span."
    )
    rules: tuple[Rule, ...] = Field(default=(), fail_fast=True)


class Provenance(Model):
    """How a summary came about: enough to make it again."""

    model: str
    prompt_version: str
    level: Level
    chunk_ids: tuple[Id, ...]
    source_ids: tuple[Id, ...] = Field(default=(), description="The summaries that it was merged from.")
    chat_id: Id | None = Field(
        default=None, description="The chat where it was made and paid for, in a fork of that chat."
    )


class Summary(Model):
    """A summary as stored. `version` grows by one with every change, a person's edit included."""

    id: Id
    chat_id: Id
    tier: Tier
    generation: Count
    span: Span
    body: Body
    text: str
    tokens: Count
    version: int = Field(default=1, ge=1)
    provenance: Provenance
    created_at: Timestamp
    edited_at: Timestamp | None = None
    edited_by: str | None = None


class SummarySaved(Model):
    """A summary was saved or changed. The text stays in Redis."""

    type: Literal["summary.saved"] = "summary.saved"
    id: Id = Field(description="uuid5 of the summary's id and version")
    at: Timestamp
    chat_id: Id
    user_id: Id | None = None
    generation: Count
    summary_id: Id
    tier: Tier
    version: int = Field(ge=1)
    span: Span
    tokens: Count
