"""The window's script beside a plain model of it, through any history that hypothesis comes up with.

The model keeps full copies of everything and decides with services/window/policy.py; the script must agree after each
step, whatever was delivered again, sent twice, contradicted, lost between script and broker, or read from a new log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from redis.asyncio import Redis

from schemas.chat import DEFAULT_LEVEL, Level
from services.failures import Poison
from services.state import ids
from services.window.incoming import Delivered
from services.window.policy import Bounds, Turn, bounds, chunks, leaving
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from tests.integration.window_state import check, chunks_of, delivered, read

CHUNK = ChunkSize(6, 900)


def named_size(text: str) -> int:
    """A text of this test names its tokens: large turns, little work."""
    return int(text)


@dataclass
class Recorded:
    """A turn that the model holds."""

    number: int
    first: int
    sizes: list[int]

    @property
    def turn(self) -> Turn:
        return Turn(len(self.sizes), sum(self.sizes))

    @property
    def span(self) -> tuple[int, int, int]:
        """As in Redis: first message, messages, tokens."""
        return self.first, len(self.sizes), sum(self.sizes)


@dataclass
class Model:
    """What the window should be."""

    live: list[Recorded] = field(default_factory=list)
    pending: list[Recorded] = field(default_factory=list)
    closed: list[list[Recorded]] = field(default_factory=list)
    unconfirmed: set[str] = field(default_factory=set)
    messages: int = 0
    level: Level = DEFAULT_LEVEL
    context: int | None = None

    def limit(self) -> Bounds:
        return bounds(self.level, self.context)

    def record(self, number: int, sizes: list[int], level: Level | None, context: int | None) -> None:
        self.live.append(Recorded(number, self.messages, sizes))
        self.messages += len(sizes)
        self.level = level or self.level
        self.context = context or self.context
        gone = leaving([turn.turn for turn in self.live], self.limit())
        self.pending += self.live[:gone]
        del self.live[:gone]
        for size in chunks([turn.turn for turn in self.pending], *CHUNK):
            chunk = self.pending[:size]
            del self.pending[:size]
            self.closed.append(chunk)
            self.unconfirmed.add(self.id_of(chunk))

    @staticmethod
    def id_of(chunk: list[Recorded]) -> str:
        last = chunk[-1]
        return ids.chunk_id("c1", 0, chunk[0].first, last.first + len(last.sizes) - 1)


# sizes chosen so that all three bounds are met: 30 to 80 messages, thousands of tokens, one turn over everything
sizes = st.lists(
    st.sampled_from([0, 1, 40, 300, 900]) | st.sampled_from([2_500, 7_000, 17_000]), min_size=1, max_size=5
)
levels = st.none() | st.sampled_from(Level)
contexts = st.none() | st.sampled_from([400, 4_000, 30_000, 1_000_000])


class WindowMachine(RuleBasedStateMachine):
    """One chat. `redis_url` and `runner` are set by the test below."""

    redis_url: str
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        self.redis = Redis.from_url(self.redis_url)
        self.run(self.redis.flushdb())
        self.window = Window(self.redis, named_size, CHUNK)
        self.model = Model()
        self.epoch = 1
        self.offset = 0
        self.turns = 0
        self.events = 0
        self.sent: list[Delivered] = []
        """Applied events, in order; each may be delivered again."""

    def run(self, work: Any) -> Any:
        async def awaited() -> Any:
            return await work

        return self.runner.run(awaited())

    def teardown(self) -> None:
        self.run(self.redis.aclose())

    def deliver(self, *events: Delivered) -> list[Work | Poison]:
        return list(self.run(self.window.apply(events)))

    def confirm(self, results: Sequence[Work | Poison], crash: bool, repeated: bool) -> None:
        """Publish what a batch published and trim, or die before it."""
        found: list[str] = []
        for work in results:
            assert isinstance(work, Work)
            assert work.repeated is repeated
            found += [chunk.id for chunk in chunks_of(work.publish)]
        # all that is not confirmed yet, whatever event brought it about, and once
        assert sorted(found) == sorted(self.model.unconfirmed)
        if crash:
            return
        for work in results:
            if isinstance(work, Work) and work.confirmed is not None:
                self.run(work.confirmed())
        self.model.unconfirmed.clear()

    def event(
        self,
        number: int,
        texts: list[int],
        level: Level | None = None,
        context: int | None = None,
        **fields: Any,
    ) -> Delivered:
        """The next record of the log."""
        self.events += 1
        more: dict[str, Any] = {"memory": {"level": level}} if level else {}
        if context:
            more["model"] = {"name": "m", "context_window": context}
        event = delivered(
            number,
            self.offset,
            [str(size) for size in texts],
            epoch=f"log-{self.epoch}",
            event=fields.pop("event", f"e{self.events}"),
            **more,
            **fields,
        )
        self.offset += 1
        return event

    def new_turn(self, texts: list[int], level: Level | None, context: int | None) -> Delivered:
        event = self.event(self.turns, texts, level, context)
        self.model.record(self.turns, texts, level, context)
        self.turns += 1
        self.sent.append(event)
        return event

    @initialize(texts=sizes)
    def first_turn(self, texts: list[int]) -> None:
        self.confirm(self.deliver(self.new_turn(texts, None, None)), crash=False, repeated=False)

    @rule(texts=sizes, level=levels, context=contexts, crash=st.booleans())
    def turn(self, texts: list[int], level: Level | None, context: int | None, crash: bool) -> None:
        self.confirm(self.deliver(self.new_turn(texts, level, context)), crash, repeated=False)

    @rule(batch=st.lists(sizes, min_size=2, max_size=30), level=levels, crash=st.booleans())
    def batch_of_turns(self, batch: list[list[int]], level: Level | None, crash: bool) -> None:
        results = self.deliver(*(self.new_turn(texts, level, None) for texts in batch))
        self.confirm(results, crash, repeated=False)

    @rule(data=st.data(), crash=st.booleans())
    def delivered_again_from_an_earlier_record_on(self, data: st.DataObject, crash: bool) -> None:
        here = [event for event in self.sent if event.position.epoch == f"log-{self.epoch}"]
        if not here:
            return
        start = data.draw(st.integers(max(0, len(here) - 40), len(here) - 1))
        self.confirm(self.deliver(*here[start:]), crash, repeated=True)

    @rule(data=st.data(), crash=st.booleans())
    def the_same_event_sent_twice(self, data: st.DataObject, crash: bool) -> None:
        old = data.draw(st.sampled_from(self.sent))
        again = Delivered(old.event, self.event(0, [1]).position, old.timestamp)
        self.confirm(self.deliver(again), crash, repeated=True)

    @rule(data=st.data(), crash=st.booleans())
    def the_same_turn_in_another_event(self, data: st.DataObject, crash: bool) -> None:
        old = data.draw(st.sampled_from(self.sent))
        position = self.event(0, [1]).position
        again = Delivered(old.event.model_copy(update={"id": f"e{self.events}"}), position, old.timestamp)
        self.confirm(self.deliver(again), crash, repeated=True)

    @rule(data=st.data())
    def the_same_turn_with_other_content(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.sent))
        number = int(old.event.model_dump()["turn"]["id"][1:])
        [result] = self.deliver(self.event(number, [3, 3]))
        assert isinstance(result, Poison)

    @rule(texts=sizes)
    def a_message_id_that_is_taken(self, texts: list[int]) -> None:
        taken = [f"new{n}" for n in range(len(texts) - 1)] + ["m0.0"]
        [result] = self.deliver(self.event(10**6 + self.events, texts, messages=taken))
        assert isinstance(result, Poison)

    @rule(texts=sizes)
    def an_older_writer(self, texts: list[int]) -> None:
        if self.offset == 0 or not any(e.position.epoch == f"log-{self.epoch}" for e in self.sent):
            return
        late = delivered(10**6 + self.events, 0, ["1"], epoch=f"log-{self.epoch}", event=f"late{self.events}")
        [result] = self.deliver(late)
        assert isinstance(result, Poison)

    @rule()
    def the_script_is_forgotten(self) -> None:
        self.run(self.redis.script_flush())

    @precondition(lambda self: self.epoch < 4)
    @rule(texts=sizes, crash=st.booleans())
    def a_new_log(self, texts: list[int], crash: bool) -> None:
        self.epoch += 1
        self.offset = 0
        self.confirm(self.deliver(self.new_turn(texts, None, None)), crash, repeated=False)

    @invariant()
    def the_script_agrees(self) -> None:
        state = self.run(read(self.redis))
        model = self.model
        if not state.fields:
            assert model.messages == 0
            return
        check(state)
        assert state.live == [turn.span for turn in model.live]
        assert state.pending == [turn.span for turn in model.pending]
        assert [chunk.id for chunk in state.chunks] == [Model.id_of(chunk) for chunk in model.closed]
        assert [chunk.tokens for chunk in state.chunks] == [
            sum(sum(turn.sizes) for turn in chunk) for chunk in model.closed
        ]
        assert state.outbox == model.unconfirmed
        assert state.number("tn") == self.turns
        assert state.number("v") == self.turns
        assert state.fields["lv"] == model.level
        assert state.fields["cw"] == str(model.context or "")

    @invariant()
    def the_rules_hold(self) -> None:
        live = [turn.turn for turn in self.model.live]
        assert len(live) <= 1 or leaving(live, self.model.limit()) == 0


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """An event loop that all steps of a machine share."""
    with asyncio.Runner() as created:
        yield created


@pytest.mark.rule("W1", "W4", "W5", "W6", "S1")
def test_the_script_does_what_the_policy_says(redis_url: str, runner: asyncio.Runner) -> None:
    WindowMachine.redis_url = redis_url
    WindowMachine.runner = runner
    run_state_machine_as_test(
        WindowMachine,
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
