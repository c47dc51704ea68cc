"""The summariser that asks a language model. Passes tests/contract/test_summariser.py.

The model is never asked to repeat what is to stay as it is: the newer part of a timeline that is compressed, and rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schemas.chat import Level
from schemas.summaries import Body, Summary, Tier, TimelineLine
from services.llm.port import Complaint, LanguageModel, Request, Unanswered
from services.summaries import material, prompts
from services.summaries.answers import ChunkTold, Told, body_of, fit, rules_of
from services.summaries.policy import passed_on
from services.summaries.port import Draft, SourceMessage
from services.summaries.render import render
from services.tokens.counter import TokenCounter

_PERIOD_SHARE = 1 / 3
"""What compressed timeline lines are hoped to keep of their length: how much of the timeline is taken follows from it."""

_SEAM = 1
"""Tokens that a text may gain where two parts of it meet."""


class _Step(NamedTuple):
    """Which prompt, on what, and the range of messages that the answer may speak of."""

    prompt: str
    data: str
    first_seq: int
    last_seq: int


class Prompted:
    """See services.summaries.port.Summariser."""

    def __init__(self, model: LanguageModel, counter: TokenCounter) -> None:
        self._model = model
        self._counter = counter

    @property
    def model(self) -> str:
        """Name of the language model."""
        return self._model.name

    async def close(self) -> None:
        """Release the model's connections."""
        await self._model.close()

    async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
        """See Summariser."""
        prompt = prompts.load("chunk")
        first, last = messages[0].seq, messages[-1].seq

        def assemble(told: ChunkTold) -> Body:
            return body_of(told, first, last)

        completion = await self._model.complete(
            Request(
                instructions=prompt.fill(level, budget),
                data=material.of_messages(messages),
                answer=ChunkTold,
                complaint=lambda told: self._complaint(assemble(told), budget),
            )
        )
        body = self._fit(assemble(completion.answer), budget)
        body = body.model_copy(update={"rules": rules_of(completion.answer.rules, messages)})
        return Draft(body, completion.model, prompt.version, completion.tokens_in, completion.tokens_out)

    async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
        """See Summariser."""
        joining = [source for source in sources if source.tier is not Tier.long_term]
        # number 0 is the long-term memory, which is only brought up to date
        start = 1 - (len(sources) - len(joining))
        data = material.of_bodies(enumerate((source.body for source in sources), start))
        step = _Step("merge", data, joining[0].span.first_seq, joining[-1].span.last_seq)
        return await self._rewrite(step, sources=sources, level=level, budget=budget)

    async def compress(self, source: Summary, *, level: Level, budget: int) -> Draft:
        """See Summariser. The newer part of the timeline is kept as it is, as far as the budget allows."""
        old, new = self._split(source.body, budget)
        data = material.of_bodies([(1, source.body.model_copy(update={"timeline": old}))])
        first = old[0].first_seq if old else source.span.first_seq
        last = old[-1].last_seq if old else source.span.last_seq
        return await self._rewrite(
            _Step("compress", data, first, last), sources=[source], stays=new, level=level, budget=budget
        )

    async def _rewrite(
        self,
        step: _Step,
        *,
        sources: Sequence[Summary],
        stays: tuple[TimelineLine, ...] = (),
        level: Level,
        budget: int,
    ) -> Draft:
        """Ask for what is to change, and put it before the timeline lines that stay."""
        prompt = prompts.load(step.prompt)
        kept = self._size(Body(timeline=stays))
        allowed = max(1, budget - kept - _SEAM) if kept else budget

        def assemble(told: Told) -> Body:
            return body_of(told, step.first_seq, step.last_seq)

        completion = await self._model.complete(
            Request(
                instructions=prompt.fill(level, allowed),
                data=step.data,
                answer=Told,
                complaint=lambda told: self._complaint(assemble(told), allowed),
            )
        )
        if not completion.answer.timeline and any(source.body.timeline for source in sources):
            raise Unanswered(
                f"model {completion.model} twice left the timeline out",
                tokens_in=completion.tokens_in,
                tokens_out=completion.tokens_out,
            )
        # fitted by itself: what the model wrote too much does not push out what stays
        told = self._fit(assemble(completion.answer), allowed)
        body = told.model_copy(update={"timeline": (*told.timeline, *stays)})
        body = self._fit(body, budget).model_copy(update={"rules": passed_on(sources)})
        return Draft(body, completion.model, prompt.version, completion.tokens_in, completion.tokens_out)

    def _complaint(self, body: Body, budget: int) -> Complaint | None:
        if not body.timeline:
            told = "The timeline is empty. Write down what has to be remembered."
            return Complaint(told, usable=False)
        if (size := self._size(body)) > budget:
            told = f"This has {size} tokens, and {budget} are allowed. Make it shorter."
            return Complaint(told, usable=True)
        return None

    def _fit(self, body: Body, budget: int) -> Body:
        return fit(body, budget, self._size, self._counter)

    def _size(self, body: Body) -> int:
        return self._counter(render(body))

    def _split(self, body: Body, budget: int) -> tuple[tuple[TimelineLine, ...], tuple[TimelineLine, ...]]:
        """The timeline's older part, just long enough that shortening it reaches the budget, and the rest."""
        excess = self._size(body.model_copy(update={"rules": ()})) - budget
        gained = 0.0
        for at, line in enumerate(body.timeline):
            if gained >= excess:
                return body.timeline[:at], body.timeline[at:]
            gained += self._counter(line.text) * (1 - _PERIOD_SHARE)
        return body.timeline, ()
