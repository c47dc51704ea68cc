"""Dead letters as values: what one says about itself, which are selected, whether one may be replayed. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from schemas.delivery import Record

OURS = "afterturn-"
"""What the runtime says about a dead letter is in headers that begin so."""

REPLAYED = "afterturn-replayed"
"""Header of a replayed record: how many times. It survives being a dead letter again, so that a loop is visible."""

BY = "afterturn-by"
"""Header of a record that the gateway published for a user's token: whose."""

LEFT_OUT = "afterturn-left-out"
"""Header of a dead letter without key, value and headers of its record, which was too large: bytes of the value."""


class Kind(StrEnum):
    """Why a record is a dead letter."""

    poison = "poison"
    parked = "parked"
    unexpected = "unexpected"


class Route(NamedTuple):
    """Where an agent's dead letters of a topic lie. `name` tells it apart in ids: the agent, where that is enough."""

    dead_letters: str
    topic: str
    agent: str
    name: str


class Place(NamedTuple):
    """A dead letter's place. `topic` is the one of the dead letters."""

    topic: str
    partition: int
    offset: int


class WrongId(ValueError):
    """An id of a dead letter cannot be understood; the message says how one looks."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A dead letter. `id` is `<agent>:<partition>:<offset>`; `at` is when it was put there (RFC 3339, UTC).

    `left_out`: the record was too large for a dead letter, and is only where it was read.
    """

    id: str
    route: Route
    record: Record
    kind: str
    reason: str
    at: str
    replayed: int
    left_out: bool = False

    @property
    def place(self) -> Place:
        """Where it lies."""
        return Place(self.record.topic, self.record.partition, self.record.offset)


def routes(topics: Iterable[str]) -> tuple[Route, ...]:
    """The routes whose topic of dead letters (`<topic>.<agent>.dlq`) is among these topics."""
    found = []
    for name in topics:
        if name.endswith(".dlq"):
            topic, _, agent = name.removesuffix(".dlq").rpartition(".")
            found.append((name, topic, agent))
    agents = [agent for _, _, agent in found]
    return tuple(
        Route(name, topic, agent, agent if agents.count(agent) == 1 else name) for name, topic, agent in found
    )


def read(route: Route, record: Record) -> DeadLetter:
    """What the headers say. One without them (written by hand) is of kind `unexpected`, with that reason."""
    headers = {name: (value or b"").decode("utf-8", "replace") for name, value in record.headers}
    return DeadLetter(
        id=name(Place(record.topic, record.partition, record.offset), (route,)),
        route=route,
        record=record,
        kind=headers.get(f"{OURS}kind", Kind.unexpected.value),
        reason=headers.get(f"{OURS}reason", "it does not say why"),
        at=headers.get(f"{OURS}at", ""),
        replayed=count(headers.get(REPLAYED, "")),
        left_out=LEFT_OUT in headers,
    )


def is_tombstone(record: Record) -> bool:
    """Whether a record of a topic of dead letters is none: it says that those before it under its key are gone.

    A dead letter may have no value either; that it is one is in its headers.
    """
    return (
        record.value is None
        and record.key is not None
        and not any(name.startswith(OURS) for name, _ in record.headers)
    )


def count(text: str) -> int:
    """Times replayed; anything but a number up to 999 is 0, for the header can come from anybody."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 3 else 0


def place(id: str, known: Sequence[Route]) -> Place:
    """Where the dead letter with this id lies; its first part is an agent, or a topic with or without `.<agent>.dlq`.

    Raises WrongId.
    """
    first, _, rest = id.partition(":")
    partition, _, offset = rest.partition(":")
    if not all(each.isascii() and each.isdigit() and len(each) <= 19 for each in (partition, offset)):
        raise WrongId(f"{id[:200]}: an id is AGENT:PARTITION:OFFSET, as `afterturn dlq list` shows it")
    matching = [
        route for route in known if first in (route.name, route.agent, route.topic, route.dead_letters)
    ]
    if len(matching) != 1:
        names = ", ".join(route.name for route in known)
        raise WrongId(f"{id[:200]}: {first[:200]} is none of {names}")
    return Place(matching[0].dead_letters, int(partition), int(offset))


def name(place: Place, known: Iterable[Route]) -> str:
    """The id of the dead letter at this place, on one of these routes."""
    route = next(route for route in known if route.dead_letters == place.topic)
    return f"{route.name}:{place.partition}:{place.offset}"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which dead letters are meant; what is None does not restrict. `handled` chooses those that are dealt with."""

    topic: str | None = None
    agent: str | None = None
    kind: Kind | None = None
    handled: bool = False
    places: frozenset[Place] | None = None

    def routes(self, known: Sequence[Route]) -> tuple[Route, ...]:
        """The routes that can have some of them."""
        topics = None if self.places is None else {place.topic for place in self.places}
        return tuple(
            route
            for route in known
            if self.topic in (None, route.topic, route.dead_letters)
            and self.agent in (None, route.agent)
            and (topics is None or route.dead_letters in topics)
        )

    def takes(self, letter: DeadLetter, handled: bool) -> bool:
        """Whether this one is meant. One that is named by its id is, dealt with or not."""
        if self.kind is not None and letter.kind != self.kind:
            return False
        return handled == self.handled if self.places is None else letter.place in self.places


@dataclass(frozen=True, slots=True)
class ReplayPolicy:
    """A record may be replayed `times` times; `force` lifts that. What was left out cannot be replayed."""

    times: int = 3
    force: bool = False

    def refusal(self, letter: DeadLetter) -> str | None:
        """Why it may not be replayed, or None."""
        if letter.left_out:
            return "was too large for a dead letter: it is only where it was read (see its headers)"
        if self.force or letter.replayed < self.times:
            return None
        return f"was replayed {letter.replayed} times and failed each time (limit {self.times}; --force replays it)"


def replay_headers(letter: DeadLetter) -> list[tuple[str, bytes]]:
    """The headers that the record had, and how often it is replayed now."""
    original = [header for header in letter.record.headers if not header[0].startswith(OURS)]
    return [*original, (REPLAYED, str(letter.replayed + 1).encode())]


def kept_headers(headers: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Headers of a record that stay when it becomes a dead letter: all but what an earlier one said."""
    return (header for header in headers if not header[0].startswith(OURS) or header[0] == REPLAYED)


def source(record: Record) -> bytes:
    """Who is likely to be at fault where a record is wrong: the user whose token it came with, else its chat or user."""
    return next((value for name, value in record.headers if name == BY), record.key) or b""


def oldest_first(letter: DeadLetter) -> tuple[int, Place]:
    """The order of a list: by the record's timestamp, then by place."""
    return letter.record.timestamp, letter.place
