"""What an audit has read and what it found. Nothing here carries the text of a chat."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

FINDINGS = 1_000
"""Findings that a report keeps; of further ones only the number."""


class Check(StrEnum):
    """What is checked, and what a finding of it means."""

    readable = "readable"
    """Something stored cannot be understood."""

    coverage = "coverage"
    """A message is nowhere, in two places, or out of order."""

    window = "window"
    """A counter of the window disagrees with what is there."""

    turns = "turns"
    """The turn table or the table of message ids disagrees with the messages."""

    chunks = "chunks"
    """Chunks are not contiguous, or one is not what its id says."""

    tiers = "tiers"
    """The summaries in use leave a gap, overlap, or are in the wrong order."""

    merges = "merges"
    """The sources of a merged summary are missing, not contiguous, or used twice."""

    archive = "archive"
    """The messages of a summarised chunk are not all in the archive."""

    rules = "rules"
    """A rule's quote is not literally in the message that it names."""

    taken_back = "taken_back"
    """Something is derived from a message that was taken back, or was made before one changed."""

    deleted = "deleted"
    """Something of a deleted chat, or the text of a deleted message, is still there."""

    rollback = "rollback"
    """What turns wrote into saved memories is to be taken back, and is not known to be."""

    memories = "memories"
    """A scope or an entry is over its limit, or the index of entries disagrees with them."""

    history = "history"
    """The history of saved memories has a gap, or does not lead to what they say."""

    journal = "journal"
    """What a turn wrote into saved memories is not what its journal names."""

    outbox = "outbox"
    """Something was decided to be published and was not confirmed."""

    usage = "usage"
    """A use of a model is in the ledger twice, or missing."""


class Severity(StrEnum):
    """A warning may be right while the stack runs, or cannot be decided from what is stored."""

    error = "error"
    warning = "warning"


class Finding(NamedTuple):
    """`chat` is empty for what concerns the ledger or, with `user`, saved memories. `detail` names numbers and ids only."""

    chat: str
    check: Check
    detail: str
    severity: Severity = Severity.error
    user: str = ""


@dataclass(slots=True)
class Read:
    """How much was read. `bookings` are the rows of the ledger as readers see them."""

    chats: int = 0
    messages: int = 0
    deleted_chats: int = 0
    live: int = 0
    pending: int = 0
    chunks: int = 0
    summaries: int = 0
    archived_summaries: int = 0
    archived_messages: int = 0
    rules: int = 0
    bookings: int = 0
    users: int = 0
    memories: int = 0
    pins: int = 0
    changes: int = 0


@dataclass(slots=True)
class Report:
    """The result. `ledger` tells whether there was one to read."""

    at_rest: bool
    ledger: bool
    read: Read = field(default_factory=Read)
    findings: list[Finding] = field(default_factory=list)
    errors: int = 0
    warnings: int = 0

    @property
    def ok(self) -> bool:
        """No errors; warnings do not count."""
        return self.errors == 0

    def add(self, finding: Finding) -> None:
        """Count a finding, and keep it while there is room."""
        if finding.severity is Severity.error:
            self.errors += 1
        else:
            self.warnings += 1
        if len(self.findings) < FINDINGS:
            self.findings.append(finding)

    def as_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "ok": self.ok,
            "at_rest": self.at_rest,
            "ledger": self.ledger,
            "read": asdict(self.read),
            "errors": self.errors,
            "warnings": self.warnings,
            "findings": [finding._asdict() for finding in self.findings],
        }
