"""The checks of the ledger: each use once, and none of a summary missing (C2)."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.summaries import Summary, Tier
from schemas.usage import Stage
from services.audit.snapshot import Snapshot
from services.credits.policy import FREE
from services.state.ids import derive

NO_PROMPT = "none"
"""Prompt version of a summary that asked no model."""


def uses(snapshot: Snapshot) -> Iterator[tuple[str, str]]:
    """Usage id and summary id for every summary that a model was paid for, as far as the archive remembers."""
    for summary in (*snapshot.summaries, *snapshot.merged_away.values()):
        made = summary.provenance
        if made.model != FREE and made.prompt_version != NO_PROMPT:
            stage, version = _origin(summary)
            # a fork pays for nothing that it took over
            yield derive("usage", stage, made.chat_id or snapshot.chat, summary.id, version), summary.id


def _origin(summary: Summary) -> tuple[Stage, int]:
    """Stage and version at which it was made; edits raise the version afterwards."""
    if summary.tier is Tier.recent:
        return Stage.chunk, 1
    names = summary.provenance.source_ids
    if len(names) == 1 and names[0].startswith(f"{summary.id}@"):
        return Stage.compress, int(names[0].rpartition("@")[2]) + 1
    return Stage.merge, 1
