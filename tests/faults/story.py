"""What happens to one chat: turns, and everything that a chat takes back. What has to stand at the end follows from here.

Texts are told apart by numbers that are unique in a family, which is a chat and its forks: every text begins with the
name of the family's first chat and its number.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

START = datetime(2026, 11, 30, 10, tzinfo=UTC)
REPLY_MODEL = "reply-model"

_SAID = (
    "the ferry leaves at seven and costs nine crowns",
    "Der Leuchtturm blinkt alle zwölf Sekunden, vergiss das nicht",
    "เรือออกเวลาเจ็ดโมงเช้า อย่าลืมนะ",
    'she said "stay" \\ and then: {"n": 1}\nnext line',
    "🚢 ⚓ ok",
)

Event = dict[str, Any]


class Told(NamedTuple):
    """What a chat tells its user's memories: operations of a turn, or turns (of a message) that are taken back; None:
    all of them."""

    type: str
    turns: tuple[str, ...] | None
    ops: tuple[Event, ...] = ()
    messages: tuple[str, ...] | None = None


@dataclass
class Turn:
    """A turn that stands: its messages (id, text; None: deleted), and whether it may have written into memories."""

    id: str
    messages: list[tuple[str, str | None]]
    event: Event
    wrote: bool


@dataclass
class Family:
    """The name of the first chat, and how many texts there are."""

    root: str
    texts: int = 0

    def text(self, dice: random.Random) -> tuple[int, str]:
        """A new one, and its number."""
        self.texts += 1
        return self.texts, f"{self.root} {self.texts}: {dice.choice(_SAID)}"


@dataclass
class Story:
    """One chat. The first `floor` turns are left alone: a fork that begins with them is on its way."""

    name: str
    family: Family
    user: str | None
    kind: str = "normal"
    level: str | None = None
    turns: list[Turn] = field(default_factory=list)
    floor: int = 0
    deleted: bool = False
    taken_back: int = 0
    replies: list[tuple[int, int]] = field(default_factory=list)
    told: list[Told] = field(default_factory=list)
    _events: int = 0

    @property
    def loose(self) -> range:
        """Places of the turns that may be taken back."""
        return range(self.floor, len(self.turns))

    def record(self, dice: random.Random, ops: list[Event]) -> Event:
        """A turn of two messages as a frontend writes it."""
        said, answered = self.family.text(dice), self.family.text(dice)
        messages = [_message("user", *said), _message("assistant", *answered)]
        # the same ids in every chat; in a fork they follow those that it begins with
        prefix = "t" if self.name == self.family.root else f"{self.name}-t"
        event = self._turn(dice, f"{prefix}{self._events}", messages, ops)
        event["type"] = "turn.recorded"
        if self.level is not None and self._events == 1:
            event["memory"] = {**event.get("memory", {}), "level": self.level}
        self._stands(event)
        return event

    def regenerate(self, dice: random.Random, ops: list[Event]) -> Event:
        """The last turn gets another reply; now and then under the same id."""
        last = self.turns[-1]
        number, answered = self.family.text(dice)
        (user, said), (reply, _) = last.messages
        assert said is not None
        messages = [_message("user", 0, said), _message("assistant", number, answered)]
        messages[0]["id"] = user
        if dice.random() < 0.3:
            messages[1]["id"] = reply
        event = self._turn(dice, last.id, messages, ops)
        event["type"] = "turn.regenerated"
        self._take_back([last])
        self.turns.pop()
        self._stands(event)
        return event

    def rewind(self, keep: int) -> Event:
        """Only the first turns stay."""
        event = self._event("chat.rewound")
        if keep:
            event["turn"] = {"id": self.turns[keep - 1].id}
        gone, self.turns = self.turns[keep:], self.turns[:keep]
        self._take_back(gone)
        return event

    def change(self, dice: random.Random, turn: Turn, place: int, *, edit: bool) -> Event:
        """A message says something else, or is deleted."""
        id, _ = turn.messages[place]
        text = self.family.text(dice)[1] if edit else None
        event = self._event("message.edited" if edit else "message.deleted")
        event["message"] = {"id": id, "text": text} if edit else {"id": id}
        turn.messages[place] = (id, text)
        self._take_back([turn], (id,))
        return event

    def fork(self, name: str, turns: int) -> tuple[Story, Event]:
        """A chat that begins with the first turns of this one; it has written nothing into memories yet."""
        copy = Story(name, self.family, self.user, self.kind)
        copy.turns = [Turn(t.id, list(t.messages), t.event, False) for t in self.turns[:turns]]
        event = copy._event("chat.forked")
        event["source"] = {"chat": self.name, "turn": self.turns[turns - 1].id}
        return copy, event

    def delete(self, *, forget: bool) -> Event:
        """Nothing stays."""
        event = self._event("chat.deleted")
        gone, self.turns, self.deleted = self.turns, [], True
        if forget:
            event["forget_memories"] = True
            self._take_back(gone)
        else:
            self.taken_back += 1
        return event

    def _event(self, type: str) -> Event:
        self._events += 1
        chat: Event = {"id": self.name, "surface": "web", "characters": ["mira"]}
        if self.kind != "normal":
            chat["kind"] = self.kind
        event: Event = {
            "type": type,
            "id": f"{self.name}-e{self._events}",
            "at": (START + timedelta(minutes=self._events)).isoformat(),
            "chat": chat,
        }
        if self.user is not None:
            event["user"] = {"id": self.user}
        return event

    def _turn(self, dice: random.Random, id: str, messages: list[Event], ops: list[Event]) -> Event:
        event = self._event("turn")
        event["turn"] = {"id": id}
        event["messages"] = messages
        event["model"] = {"name": REPLY_MODEL, "context_window": 65_536}
        event["usage"] = {
            "prompt_tokens": dice.randint(1, 9_000),
            "completion_tokens": dice.randint(1, 900),
        }
        if ops:
            event["memory"] = {"ops": ops}
            if dice.random() < 0.1:
                event["model"]["tools"] = False
        return event

    def _stands(self, event: Event) -> None:
        ops = event.get("memory", {}).get("ops", ())
        tools = event["model"].get("tools", True)
        wrote = bool(ops) and self.user is not None and self.kind != "bounty" and tools
        turn = event["turn"]["id"]
        if wrote:
            self.told.append(Told("memory.ops", (turn,), tuple(ops)))
        messages = [(message["id"], message["text"]) for message in event["messages"]]
        self.turns.append(Turn(turn, messages, event, wrote))
        usage = event["usage"]
        self.replies.append((usage["prompt_tokens"], usage["completion_tokens"]))

    def _take_back(self, turns: list[Turn], messages: tuple[str, ...] | None = None) -> None:
        self.taken_back += 1
        wrote = tuple(turn.id for turn in turns if turn.wrote)
        if wrote:
            # where no turn stays, they are not named
            named = wrote if self.turns else None
            self.told.append(Told("memory.rollback", named, messages=messages))


def _message(role: str, number: int, text: str) -> Event:
    author = "ida" if role == "user" else "mira"
    return {"id": f"m{number}", "role": role, "author": author, "text": text}
