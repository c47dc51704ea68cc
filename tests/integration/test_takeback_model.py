"""Whatever is recorded, summarised, edited and taken back: the chat is as if what was taken back had never been said.

The model keeps the turns that stand, with full texts. After each step every message lies where it should, no summary says
what no message says, and a summary that covers only what stands is the one that was there before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis

from schemas.chat import DEFAULT_LEVEL
from schemas.chunks import ChunkClosed
from schemas.summaries import Body, Summary, TimelineLine
from services.failures import Poison
from services.summaries.editing import Editing
from services.window.incoming import Delivered
from services.window.policy import bounds
from services.window.service import Window
from services.window.store import ChunkSize
from services.work import Work
from tests.integration.summaries_state import Clock
from tests.integration.takeback_state import (
    Quoting,
    Whole,
    announced,
    check,
    delivered,
    full,
    recorded,
    summaries,
    whole,
)

Turns = list[tuple[str, str, list[tuple[str, str | None]]]]

MODEL = {"name": "small", "context_window": 400}
"""A window of 100 tokens; a token is a character, a text has 10."""

LIMIT = bounds(DEFAULT_LEVEL, 400)

CHUNK = ChunkSize(4, 1_000)


class TakeBackMachine(RuleBasedStateMachine):
    """Chat c1 and its forks. `redis_url` and `runner` are set by the test below."""

    redis_url: str
    runner: asyncio.Runner

    def __init__(self) -> None:
        super().__init__()
        self.redis = Redis.from_url(self.redis_url)
        self.run(self.redis.flushdb())
        self.window = Window(self.redis, len, CHUNK)
        self.quoting = Quoting()
        self.summaries = summaries(self.redis, self.quoting)
        self.chats: dict[str, Turns] = {"c1": []}
        self.deleted: set[str] = set()
        self.sent: list[Delivered] = []
        self.closed: list[ChunkClosed] = []
        """Announced chunks, some of them taken back since."""
        self.count = self.offset = 0

    def run(self, work: Any) -> Any:
        async def awaited() -> Any:
            return await work

        return self.runner.run(awaited())

    def teardown(self) -> None:
        self.run(self.redis.aclose())

    def next(self) -> int:
        self.count += 1
        return self.count

    def text(self) -> str:
        return f"text-{self.next():05d}"

    def deliver(self, body: dict[str, Any], chat: str, crash: bool = False) -> Work | Poison:
        """The next record of the log; with `crash` nobody learns of it, until it is delivered again."""
        self.offset += 1
        event = delivered({"id": f"e{self.next()}", **body}, self.offset, chat=chat)
        self.sent.append(event)
        (result,) = self.run(self.window.apply([event]))
        if crash:
            (result,) = self.run(self.window.apply([event]))
        if isinstance(result, Work):
            self.finish(result)
        return result

    def finish(self, work: Work) -> None:
        chunks, saved = announced(work)
        self.closed += chunks
        if work.confirmed is not None:
            self.run(work.confirmed())
        for event in saved:
            self.finish(self.run(self.summaries.merge(event)))

    def state(self, chat: str) -> Whole:
        state: Whole = self.run(whole(self.redis, chat))
        return state

    def draw_chat(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(set(self.chats) - self.deleted)))

    def record(self, chat: str, messages: int, crash: bool = False) -> None:
        number = self.next()
        said = [(f"m{number}.{at}", self.text()) for at in range(messages)]
        event = recorded(f"t{number}", said, f"e{self.next()}", model=MODEL)
        result = self.deliver(event, chat, crash)
        assert isinstance(result, Work)
        self.chats[chat].append((f"t{number}", "", list(said)))

    def kept(self, before: Whole, chat: str, touched: range | None) -> None:
        """Leaves that cover nothing of `touched` are the same bytes as before."""
        after = self.state(chat).leaves
        for id, summary in before.leaves.items():
            span = range(summary.span.first_seq, summary.span.last_seq + 1)
            if touched is None or not set(span) & set(touched):
                assert after[id] == summary

    @initialize(count=st.integers(1, 60))
    def a_history(self, count: int) -> None:
        for _ in range(count):
            self.record("c1", 2)
        self.summarise_all()

    @rule(data=st.data(), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=12), crash=st.booleans())
    def turns(self, data: st.DataObject, sizes: list[int], crash: bool) -> None:
        chat = self.draw_chat(data)
        for size in sizes:
            self.record(chat, size, crash)

    @rule(data=st.data())
    def a_chunk_is_summarised(self, data: st.DataObject) -> None:
        """Any that was ever announced; for one that was taken back nothing comes of it."""
        if self.closed:
            chunk = data.draw(st.sampled_from(self.closed))
            self.finish(self.run(self.summaries.summarise(chunk)))

    @rule()
    def summarise_all(self) -> None:
        for chunk in list(self.closed):
            self.finish(self.run(self.summaries.summarise(chunk)))
        self.closed.clear()

    @rule(data=st.data(), crash=st.booleans())
    def rewind(self, data: st.DataObject, crash: bool) -> None:
        chat = self.draw_chat(data)
        turns = self.chats[chat]
        if not turns:
            return
        # into what is not summarised yet as often as into what is
        keep = len(turns) - data.draw(st.integers(0, min(12, len(turns))) | st.integers(0, len(turns)))
        before, calls = self.state(chat), self.quoting.calls
        turn = {"id": turns[keep - 1][0]} if keep else None
        result = self.deliver({"type": "chat.rewound", "turn": turn}, chat, crash)
        assert isinstance(result, Work)
        del turns[keep:]
        end = sum(len(messages) for _, _, messages in turns)
        after = self.state(chat)
        if turns and end < before.number("n"):
            full(after, LIMIT)
        # what waits for its summary still does: it may be under way, and is paid for once
        assert [c for c in before.chunks if c.span.last_seq < end] == after.chunks
        self.kept(before, chat, range(end, before.number("n")))
        assert self.quoting.calls == calls

    @rule(data=st.data(), size=st.integers(1, 3), crash=st.booleans())
    def regenerate(self, data: st.DataObject, size: int, crash: bool) -> None:
        chat = self.draw_chat(data)
        turns = self.chats[chat]
        if not turns:
            return
        before = self.state(chat)
        id, _, old = turns[-1]
        said = [old[0], *((f"m{self.next()}", self.text()) for _ in range(size))]
        if said[0][1] is None:
            said = said[1:]
        event = recorded(id, [(name, text or "") for name, text in said], "") | {"type": "turn.regenerated"}
        del event["id"]
        result = self.deliver({**event, "model": MODEL}, chat, crash)
        assert isinstance(result, Work)
        turns[-1] = (id, "", said)
        end = before.number("n")
        self.kept(before, chat, range(end - len(old), end))

    @rule(data=st.data(), edit=st.booleans(), crash=st.booleans())
    def change_a_message(self, data: st.DataObject, edit: bool, crash: bool) -> None:
        chat = self.draw_chat(data)
        places = [
            (t, m) for t, turn in enumerate(self.chats[chat]) for m, said in enumerate(turn[2]) if said[1]
        ]
        if not places:
            return
        t, m = data.draw(st.sampled_from(places))
        before = self.state(chat)
        messages = self.chats[chat][t][2]
        id = messages[m][0]
        text = self.text() if edit else None
        message = {"id": id, "text": text} if edit else {"id": id}
        kind = "message.edited" if edit else "message.deleted"
        assert isinstance(self.deliver({"type": kind, "message": message}, chat, crash), Work)
        messages[m] = (id, text)
        seq = before.numbers[id]
        self.kept(before, chat, range(seq, seq + 1))

    @rule(data=st.data(), crash=st.booleans())
    def fork(self, data: st.DataObject, crash: bool) -> None:
        chat = self.draw_chat(data)
        turns = self.chats[chat]
        if not turns or len(self.chats) > 4:
            return
        at = data.draw(st.integers(0, len(turns) - 1))
        new = f"f{len(self.chats)}"
        source = self.state(chat)
        event = {"type": "chat.forked", "source": {"chat": chat, "turn": turns[at][0]}}
        calls = self.quoting.calls
        assert isinstance(self.deliver(event, new, crash), Work)
        self.chats[new] = [(id, "", list(messages)) for id, _, messages in turns[: at + 1]]
        assert self.quoting.calls == calls
        end = sum(len(messages) for _, _, messages in self.chats[new])
        if end < source.number("n"):
            full(self.state(new), LIMIT)
        after = self.state(new).leaves
        for id, summary in source.leaves.items():
            if summary.span.last_seq < end:
                assert after[id].body == summary.body

    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        alive = set(self.chats) - self.deleted
        if len(alive) < 2:
            return
        chat = self.draw_chat(data)
        assert isinstance(self.deliver({"type": "chat.deleted"}, chat), Work)
        self.deleted.add(chat)
        left = self.run(self.redis.keys(f"{{c:{chat}}}:*"))
        assert left == [f"{{c:{chat}}}:w".encode()]

    @rule(data=st.data())
    def a_person_edits_a_summary(self, data: st.DataObject) -> None:
        chat = self.draw_chat(data)
        in_use: list[Summary] = self.state(chat).summaries
        if in_use:
            summary = data.draw(st.sampled_from(in_use))
            line = TimelineLine(
                text=f"edited-{self.next()}", first_seq=summary.span.first_seq, last_seq=summary.span.last_seq
            )
            editing = Editing(self.redis, lambda text: 0, Clock())
            body = Body(timeline=(line,))
            _, work = self.run(editing.edit(chat, summary.id, summary.version, body, by="ida"))
            self.finish(work)

    @rule(data=st.data())
    def delivered_again(self, data: st.DataObject) -> None:
        """Nothing comes of a record that has taken effect, nor of what it said when that was taken back."""
        event = data.draw(st.sampled_from(self.sent))
        (result,) = self.run(self.window.apply([event]))
        if isinstance(result, Work):
            self.finish(result)

    @invariant()
    def as_if_it_had_never_been_said(self) -> None:
        for chat in set(self.chats) - self.deleted:
            if self.chats[chat] or chat == "c1":
                state = self.state(chat)
                if state.fields:
                    check(state, self.chats[chat])


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """An event loop that all steps of a machine share."""
    with asyncio.Runner() as created:
        yield created


@pytest.mark.rule("W7", "W8")
def test_what_is_taken_back_disappears_and_nothing_else(redis_url: str, runner: asyncio.Runner) -> None:
    TakeBackMachine.redis_url = redis_url
    TakeBackMachine.runner = runner
    run_state_machine_as_test(
        TakeBackMachine,
        settings=settings(
            max_examples=30, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
