"""What a run publishes: turns of many chats in a random order, what these chats take back, forks, commands on memories,
repeats of all that, and records that are wrong.

Everything follows from the seed. What has to be there at the end is known from here alone.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from tests.faults import trouble
from tests.faults.story import REPLY_MODEL, Family, Story
from tests.faults.trouble import USAGE, Planned
from tests.faults.wishes import Wishes

__all__ = ["DEFAULT_PRICE", "PRICE", "PRICES", "REPLY_MODEL", "USAGE", "Load", "plan"]

PRICES = """\
default:
  - {input: "0.001", output: "0.004"}
models:
  reply-model:
    - {input: "0.000301", output: "0.001207"}
"""
"""The price table of a run. All its numbers are exact in six places."""

PRICE = {"reply-model": (Decimal("0.000301"), Decimal("0.001207"))}
DEFAULT_PRICE = (Decimal("0.001"), Decimal("0.004"))

REPEATS, COMMANDS_SHARE, WRITES = 0.1, 0.05, 0.15
"""Shares of repeats, of commands from outside, and of turns that write into memories."""

TAKEN_BACK = {
    "turn.regenerated": 0.035,
    "chat.rewound": 0.012,
    "message.edited": 0.012,
    "message.deleted": 0.01,
}
"""How many a turn."""

FORKS, DELETED, LONG, COLLECTORS = 12, 25, 40, 20
"""One chat in so many; at least one of each."""

LONG_TURNS = 2.6
"""Times the turns of the others: so many that a long-term memory is made, and taken apart."""


@dataclass
class Load:
    """The records in order, and the chats as they have to be in the end. `commands` are those from outside, by id."""

    records: list[Planned]
    stories: dict[str, Story]
    commands: dict[str, dict[str, Any]] = field(default_factory=dict)
    kinds: Counter[str] = field(default_factory=Counter)

    @property
    def poison(self) -> list[Planned]:
        """The records that belong in the dead letters."""
        return [record for record in self.records if record.reason is not None]

    @property
    def replies(self) -> list[tuple[str, int, int]]:
        """Every reply that was paid for: its chat, tokens in and out."""
        return [(story.name, *tokens) for story in self.stories.values() for tokens in story.replies]

    @property
    def taken_back(self) -> dict[str, int]:
        """Take-backs by kind, forks and deleted chats among them."""
        kinds = (*TAKEN_BACK, "chat.forked", "chat.deleted")
        return {kind: self.kinds[kind] for kind in kinds}


class _Plan:
    """The load while it is made. `due`: what is published at a later place, because others have to come before it."""

    def __init__(self, seed: int, chats: int, turns: int, poison: int) -> None:
        self.dice = dice = random.Random(seed)
        names = [f"c{number:03d}" for number in range(chats)]
        long = set(dice.sample(names, max(1, chats // LONG)))
        stories = {name: _story(name, long=name in long) for name in names}
        self.load = Load([], stories)
        self.order = [n for n in names for _ in range(round(turns * (LONG_TURNS if n in long else 1)))]
        dice.shuffle(self.order)
        self.left = Counter(self.order)
        others = [name for name in names if name not in long]
        self.doomed = set(dice.sample(others, max(1, chats // DELETED)))
        # not long: their forks would be long as well
        self.forked = self._places(sorted(set(others) - self.doomed), max(1, chats // FORKS))
        self.collectors = set(dice.sample(names, max(1, chats // COLLECTORS)))
        self.wishes: dict[str, Wishes] = {}
        self.due: dict[int, list[tuple[Story, Planned]]] = {}
        self.sent: list[Planned] = []
        self.wrong = trouble.poisons(dice)
        self.poisoned = set(dice.sample(range(len(self.order) // 10, len(self.order)), poison))

    def _places(self, names: list[str], count: int) -> dict[str, int]:
        """Which chats are forked, at which of their turns."""
        chosen = self.dice.sample(names, min(count, len(names)))
        return {name: self.dice.randint(self.left[name] // 2, self.left[name] * 3 // 4) for name in chosen}

    def make(self) -> Load:
        """All of it."""
        dice, place = self.dice, 0
        while place < len(self.order):
            for new, forked in self.due.pop(place, ()):
                self.load.stories[new.name] = new
                self._send(forked)
            story = self.load.stories[self.order[place]]
            self._turn(story)
            if story.name in self.forked and self.left[story.name] <= self.forked[story.name]:
                self._fork(story, place)
            for kind, share in TAKEN_BACK.items():
                if dice.random() < share:
                    # at once, or anywhere else
                    self._take_back(story if dice.random() < 0.5 else self._any(), kind)
            if story.name in self.doomed and not self.left[story.name]:
                self._end(story)
            self._beside(place)
            place += 1
        assert not self.due
        self.load.kinds = Counter(record.kind for record in self.load.records)
        return self.load

    def _send(self, record: Planned) -> None:
        self.load.records.append(record)
        self.sent.append(record)

    def _any(self) -> Story:
        """A chat that is there and has a few turns."""
        there = [s for s in self.load.stories.values() if not s.deleted and len(s.turns) >= 3]
        return (
            self.dice.choice(there) if there else max(self.load.stories.values(), key=lambda s: len(s.turns))
        )

    def _wishes(self, user: str | None) -> Wishes:
        return self.wishes.setdefault(user or "nobody", Wishes(user or "nobody"))

    def _ops(self, story: Story) -> list[dict[str, Any]]:
        collects = story.name in self.collectors
        if self.dice.random() >= (0.8 if collects else WRITES):
            return []
        count = self.dice.randint(6, 12) if collects else self.dice.randint(1, 3)
        return self._wishes(story.user).of_turn(self.dice, count)

    def _turn(self, story: Story) -> None:
        self.left[story.name] -= 1
        self._send(trouble.record(story.record(self.dice, self._ops(story)), "turn"))

    def _take_back(self, story: Story, kind: str) -> None:
        dice, loose = self.dice, story.loose
        if story.deleted or len(loose) < 2:
            return
        match kind:
            case "turn.regenerated":
                if any(text is None for _, text in story.turns[-1].messages):
                    return
                event = story.regenerate(dice, self._ops(story))
            case "chat.rewound":
                far = dice.random() < 0.2
                keep = len(story.turns) - dice.randint(1, 30 if far else 5)
                event = story.rewind(max(story.floor, keep))
            case _:
                near = [at for at in loose if at >= len(story.turns) - 20]
                wrote = [at for at in loose if story.turns[at].wrote] or near
                turn = story.turns[dice.choice(dice.choice([near, list(loose), wrote]))]
                places = [at for at, (_, text) in enumerate(turn.messages) if text is not None]
                if not places:
                    return
                event = story.change(dice, turn, dice.choice(places), edit=kind == "message.edited")
        self._send(trouble.record(event, kind))

    def _fork(self, story: Story, place: int) -> None:
        """The new chat begins with all that there is now, which its source leaves alone from now on. It is asked for
        when the source's events have had the time to be applied, wherever a worker was killed."""
        del self.forked[story.name]
        story.floor = len(story.turns)
        name = f"f{story.name[1:]}"
        new, event = story.fork(name, story.floor)
        later = min(place + len(self.order) // 3, len(self.order) - 1)
        self.due.setdefault(later, []).append((new, trouble.record(event, "chat.forked")))
        # it goes on among the others
        turns = max(4, self.left[story.name] // 2)
        for at in sorted(self.dice.randint(later + 1, len(self.order)) for _ in range(turns)):
            self.order.insert(at, name)
        self.left[name] = turns

    def _end(self, story: Story) -> None:
        event = story.delete(forget=self.dice.random() < 0.5)
        key = story.name.encode()
        # what comes after it is wrong, the same again as well
        self.sent = [record for record in self.sent if record.key != key]
        self._send(trouble.record(event, "chat.deleted"))
        if self.poisoned and self.dice.random() < 0.5:
            again = Story(story.name, Family("late"), None)
            self.load.records.append(trouble.too_late(self.dice, f"late-{story.name}", again))

    def _beside(self, place: int) -> None:
        """Commands from outside, repeats, poison."""
        dice, load = self.dice, self.load
        if dice.random() < COMMANDS_SHARE:
            story = self._any()
            if story.user is not None:
                command = self._wishes(story.user).command(dice, story.turns[-1].event["at"])
                load.commands[command["id"]] = command
                self._send(trouble.command(command, "command"))
        if dice.random() < REPEATS:
            there = [s for s in load.stories.values() if s.turns]
            load.records.append(trouble.repeat(dice, self.sent, there))
        if place in self.poisoned:
            # every kind comes, the rest by chance
            make = self.wrong.pop() if self.wrong else dice.choice(trouble.poisons(dice))
            load.records.append(make(f"poison-{place}", self._any()))


def _story(name: str, *, long: bool) -> Story:
    number = int(name[1:])
    # two chats a user; some are signed out, some are bounty chats
    user = None if name.endswith("7") else f"user-{number // 2:03d}"
    level = "balanced" if long or number % 2 == 0 else "key_events"
    return Story(name, Family(name), user, "bounty" if name.endswith("15") else "normal", level)


def plan(seed: int, chats: int, turns: int, poison: int) -> Load:
    """`turns` of every chat, and what happens between them; `poison` records are wrong."""
    return _Plan(seed, chats, turns, poison).make()
