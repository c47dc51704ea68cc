"""The work of the agents `summarise` and `merge`.

| the process dies | what follows |
|---|---|
| before or during the model's answer | nothing is stored; the redelivery asks the model again |
| after a summary was saved, before it was announced | the redelivery finds it, announces the same ids, asks no model |
| after the announcement, before the acknowledgement | the same ids are published once more; readers skip them |
| between two steps of merging | the announcement of the first is on the topic and brings the second |

Shown by tests/integration/test_summaries_service.py.

One merge event makes at most one step: what it saves is announced on the topic that the agent itself reads, and so
brings the next one. Every summary that is saved or edited is announced, hence no four are left waiting.

What a failed or lost call has cost is noted in the outbox and booked with the chat's next event (C1).
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

from redis.asyncio import Redis

from schemas.chat import Level
from schemas.chunks import ChunkClosed
from schemas.delivery import Topics
from schemas.summaries import Body, Provenance, Summary, SummarySaved, Tier
from schemas.usage import Stage
from services.failures import Transient
from services.llm.port import Unanswered
from services.state import deleted
from services.state.agents import MERGE, SUMMARISE
from services.state.ids import merged_id
from services.summaries import announce, policy, store
from services.summaries.announce import Use
from services.summaries.port import Draft, Summariser
from services.summaries.render import render
from services.tokens.counter import TokenCounter
from services.work import Work

ANSWERS_KEPT = 256
"""Answers of a summariser that are not saved yet; more than are in flight in one worker."""

ATTEMPTS = 8
"""So often a merge starts over from edited text before the event is retried later."""

NO_PROMPT = "none"
"""Prompt version of what needed no summariser: a chunk without any text."""


class Call(NamedTuple):
    """One call of the summariser, for the metrics. `outcome`: answered or failed."""

    stage: Stage
    outcome: str
    seconds: float
    tokens_in: int
    tokens_out: int


def unobserved(call: Call) -> None:
    """For callers without metrics."""


class Summaries:
    """Raises Poison and Transient (services.failures), and redis.RedisError where the store is away.

    `clock` gives the time in UTC, `monotonic` seconds for durations.
    """

    def __init__(
        self,
        redis: Redis,
        summariser: Summariser,
        counter: TokenCounter,
        clock: Callable[[], datetime],
        observe: Callable[[Call], None] = unobserved,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = redis
        self._summariser = summariser
        self._counter = counter
        self._clock = clock
        self._observe = observe
        self._monotonic = monotonic
        self._answered: dict[tuple[Hashable, ...], Draft] = {}

    async def summarise(self, chunk: ChunkClosed) -> Work:
        """Save the chunk's summary and announce it; once, however often the event comes (S1)."""
        chat = chunk.chat.id
        source = await store.read_chunk(self._redis, chunk)
        if source is None:
            return await self._nothing(chat, SUMMARISE, Topics.CHUNKS)
        use = Use(chunk.chat, chunk.user_id, Stage.chunk, self._summariser.model, 0, 0)
        if any(message.text.strip() for message in source.messages):
            budget = policy.chunk_budget(chunk.tokens)
            ask = partial(self._summariser.chunk, source.messages, level=chunk.level, budget=budget)
            draft = await self._ask((chunk.id,), ask, use, SUMMARISE)
        else:
            draft = Draft(Body(), self._summariser.model, NO_PROMPT, 0, 0)
        summary = Summary(
            id=chunk.id,
            chat_id=chat,
            tier=Tier.recent,
            generation=chunk.generation,
            span=chunk.span,
            body=draft.body,
            text=(text := render(draft.body)),
            tokens=self._counter(text),
            provenance=Provenance(
                model=draft.model,
                prompt_version=draft.prompt_version,
                level=chunk.level,
                chunk_ids=(chunk.id,),
            ),
            created_at=self._clock(),
        )
        entries = self._entries(summary, use, draft)
        saved = await store.save_recent(self._redis, chunk, summary, source.archive, entries)
        self._answered.pop((chunk.id,), None)
        if not saved:
            await self._book_lost(use, draft, SUMMARISE, chunk.id)
            return await store.work(self._redis, chat, SUMMARISE, repeated=True)
        return await store.work(self._redis, chat, SUMMARISE, repeated=False)

    async def tombstone(self, chat: str) -> Work:
        """A tombstone of a chat: what was noted while the chat was deleted is booked. Raises Poison where it was not."""
        gone = await deleted.tombstone(self._redis, chat)
        held = [await store.work(self._redis, chat, agent, repeated=False) for agent in (SUMMARISE, MERGE)]

        async def trim() -> None:
            for work in held:
                if work.confirmed is not None:
                    await work.confirmed()

        publish = tuple(record for work in held for record in work.publish)
        return Work(publish, trim) if publish else gone

    async def _nothing(self, chat: str, agent: str, topic: str) -> Work:
        """Of a record that nothing is to be done for any more; where its chat was deleted, it came too late."""
        held = await store.work(self._redis, chat, agent, repeated=True)
        late = await deleted.repeated(self._redis, chat, topic)
        return replace(held, publish=(*held.publish, *late.publish))

    async def merge(self, event: SummarySaved) -> Work:
        """Take the next step that the chat's summaries allow, if any (S2, S4); start over where a source changed (S6)."""
        chat = event.chat_id
        for attempt in range(ATTEMPTS):
            state = await store.read_state(self._redis, chat, due=True)
            if state is None:
                return await self._nothing(chat, MERGE, Topics.SUMMARIES)
            plan = policy.next_merge(state.summaries, self._size)
            if plan is None:
                held = await store.work(self._redis, chat, MERGE, repeated=False)
                return replace(held, repeated=bool(held.publish) and attempt == 0)
            if await self._step(state, plan):
                return await store.work(self._redis, chat, MERGE, repeated=False)
        raise Transient(f"the summaries of the chat changed during {ATTEMPTS} attempts to merge them")

    async def _step(self, state: store.State, plan: policy.Plan) -> bool:
        """Carry out a plan; False where a source had changed by the time of saving."""
        use = Use(state.chat, state.user_id, plan.stage, self._summariser.model, 0, 0)
        level = plan.sources[-1].provenance.level if plan.stage is Stage.compress else state.level
        rules = policy.passed_on(plan.sources)
        # a fork has its source's summaries, ids and versions included, and its own call is booked on it
        made_of = (state.chat.id, plan.stage, *((source.id, source.version) for source in plan.sources))
        if all(_is_bare(source.body) for source in plan.sources):
            draft = Draft(Body(), self._summariser.model, NO_PROMPT, 0, 0)
        else:
            draft = await self._ask(made_of, partial(self._answer, plan, level), use, MERGE)
        timeline = (*plan.stays, *draft.body.timeline)
        body = draft.body.model_copy(update={"timeline": timeline, "rules": rules})
        if plan.stage is Stage.compress and policy.over_cap(size := self._size_of(body), level):
            self._answered.pop(made_of, None)
            await self._book_lost(use, draft, MERGE, plan.sources[0].id)
            raise Transient(f"compressed to {size} tokens, which is still well over the cap")
        summary = self._summary(state, plan, level, body, draft)
        saved = await store.save_merged(
            self._redis, state, plan.sources, summary, self._entries(summary, use, draft)
        )
        self._answered.pop(made_of, None)
        if not saved:
            await self._book_lost(use, draft, MERGE, summary.id)
        return saved

    def _answer(self, plan: policy.Plan, level: Level) -> Awaitable[Draft]:
        sizes = [self._size(source) for source in plan.sources]
        if plan.stage is Stage.compress:
            cap = policy.long_term_cap(level)
            return self._summariser.compress(plan.sources[0], level=level, budget=cap)
        if plan.tier is Tier.merged:
            budget = policy.merged_budget(sizes)
            return self._summariser.merge(plan.sources, tier=plan.tier, level=level, budget=budget)
        first, *joining = plan.sources
        merged = sizes[-policy.GROUP :]
        budget = policy.long_term_budget(sum(sizes) - sum(merged), merged, level)
        if plan.stays:
            budget -= self._size_of(Body(timeline=plan.stays))
            body = first.body.model_copy(update={"timeline": ()})
            text = render(body)
            first = first.model_copy(update={"body": body, "text": text, "tokens": self._counter(text)})
        return self._summariser.merge([first, *joining], tier=plan.tier, level=level, budget=budget)

    def _summary(
        self, state: store.State, plan: policy.Plan, level: Level, body: Body, draft: Draft
    ) -> Summary:
        chat, span, first = state.chat.id, plan.span, plan.sources[0]
        id, version = first.id, first.version + 1
        if plan.stage is not Stage.compress:
            id = merged_id(plan.tier, chat, state.generation, span.first_seq, span.last_seq)
            version = 1
        # the long-term memory would otherwise name every chunk of the chat; its sources in the archive do
        chunks = [chunk for source in plan.sources for chunk in source.provenance.chunk_ids]
        return Summary(
            id=id,
            chat_id=chat,
            tier=plan.tier,
            generation=state.generation,
            span=span,
            body=body,
            text=(text := render(body)),
            tokens=self._counter(text),
            version=version,
            provenance=Provenance(
                model=draft.model,
                prompt_version=draft.prompt_version,
                level=level,
                chunk_ids=tuple(chunks) if plan.tier is Tier.merged else (),
                source_ids=tuple(store.archive_name(source, id) for source in plan.sources),
            ),
            created_at=self._clock(),
        )

    async def _ask(
        self, made_of: tuple[Hashable, ...], ask: Callable[[], Awaitable[Draft]], use: Use, agent: str
    ) -> Draft:
        """The summariser's answer, asked once: where the store is away when it is to be saved, the next attempt finds
        it here. A process that dies in between has paid for it without booking it."""
        known = self._answered.pop(made_of, None)
        if known is not None:
            self._answered[made_of] = known
            return known
        started = self._monotonic()
        try:
            draft = await ask()
        except Transient as failure:
            cost = (failure.tokens_in, failure.tokens_out) if isinstance(failure, Unanswered) else (0, 0)
            self._observe(Call(use.stage, "failed", self._monotonic() - started, *cost))
            await self._book(replace(use, tokens_in=cost[0], tokens_out=cost[1]), agent, "failed")
            raise
        seconds = self._monotonic() - started
        self._observe(Call(use.stage, "answered", seconds, draft.tokens_in, draft.tokens_out))
        self._answered[made_of] = draft
        if len(self._answered) > ANSWERS_KEPT:
            del self._answered[next(iter(self._answered))]
        return draft

    def _entries(self, summary: Summary, use: Use, draft: Draft) -> dict[str, str]:
        paid = replace(use, model=draft.model, tokens_in=draft.tokens_in, tokens_out=draft.tokens_out)
        return announce.saved(summary, use.user_id, summary.created_at) | announce.booked(
            paid, summary.created_at, (summary.id, summary.version)
        )

    async def _book_lost(self, use: Use, draft: Draft, agent: str, subject: str) -> None:
        paid = replace(use, model=draft.model, tokens_in=draft.tokens_in, tokens_out=draft.tokens_out)
        await self._book(paid, agent, f"lost/{subject}")

    async def _book(self, use: Use, agent: str, subject: str) -> None:
        """Note a use that led to no summary. Each is one of its own: the time is part of its id."""
        at = self._clock()
        entries = announce.booked(use, at, (subject, at.isoformat()))
        if entries:
            await store.note(self._redis, use.chat.id, agent, entries)

    def _size(self, summary: Summary) -> int:
        return self._size_of(summary.body) if summary.body.rules else summary.tokens

    def _size_of(self, body: Body) -> int:
        """Tokens without the rules."""
        return self._counter(render(body.model_copy(update={"rules": ()})))


def _is_bare(body: Body) -> bool:
    """Nothing to merge but rules."""
    return not (body.timeline or body.promises or body.facts or body.state)
