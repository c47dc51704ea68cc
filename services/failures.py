"""The three ways in which handling a record can fail (the runtime decides what follows from each)."""

from __future__ import annotations

from schemas.delivery import Outgoing


class Poison(Exception):
    """The record itself is wrong and will be wrong again: to the dead letters, at once, with this reason.

    The reason names the field and the limit; it never quotes the text of a chat. `keep=False`: the dead letter has the
    key and the reason only, because what the record says is not to be kept (a deleted chat). `publish`: what is to be
    published all the same.
    """

    def __init__(self, reason: str, *, keep: bool = True, publish: tuple[Outgoing, ...] = ()) -> None:
        super().__init__(reason)
        self.keep = keep
        self.publish = publish


class Transient(Exception):
    """Something outside did not work this time: again later, with growing pauses, inside a budget.

    `outage=True` means that a store is away, not that this record has a problem: then the worker waits for
    as long as it takes, and Kafka is the buffer.
    """

    def __init__(self, reason: str, *, outage: bool = False) -> None:
        super().__init__(reason)
        self.outage = outage


class Fatal(Exception):
    """Going on would do harm: the worker stops, with nothing acknowledged that is not done."""
