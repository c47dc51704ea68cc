"""What a service hands back to the stream that called it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from schemas.delivery import Outgoing


@dataclass(frozen=True, slots=True)
class Work:
    """A record's effects. They are stored already; what is left is to publish, and then to call `confirmed`.

    `confirmed` (usually: trim the outbox) runs after the broker has confirmed all of `publish`, before the record
    is acknowledged. `repeated` tells that the record had taken effect before.
    """

    publish: tuple[Outgoing, ...] = ()
    confirmed: Callable[[], Awaitable[None]] | None = None
    repeated: bool = False


DONE = Work()
REPEATED = Work(repeated=True)
