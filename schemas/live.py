"""What a chat's live channel carries: small hints that something changed, for the server-sent events of the gateway."""

from __future__ import annotations

from typing import Literal

from schemas.base import Count, Id, Model
from schemas.summaries import Tier


class WindowChanged(Model):
    """The window moved. `version` grows by one with every change of the chat's window."""

    type: Literal["window"] = "window"
    version: Count
    live_messages: Count
    pending_messages: Count


class SummaryChanged(Model):
    """A summary was saved, edited or merged away."""

    type: Literal["summary"] = "summary"
    summary_id: Id
    tier: Tier
    version: Count


class Notice(Model):
    """Something that the user should know."""

    type: Literal["notice"] = "notice"
    text: str
