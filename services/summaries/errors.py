"""Why an edit of a summary was refused. None of them changed anything."""

from __future__ import annotations


class EditRefused(Exception):
    """Base of the reasons below."""


class NotFound(EditRefused):
    """The chat has no summary in use with this id."""


class MergedAway(NotFound):
    """The summary has been merged into another one since it was read; that one can be edited."""


class Conflict(EditRefused):
    """The summary has changed since it was read; `current` is its version now."""

    def __init__(self, current: int) -> None:
        super().__init__(f"version: the summary is at version {current}")
        self.current = current
