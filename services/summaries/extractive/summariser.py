"""The `extractive` implementation of the port: chunk, merge and compress by choosing clauses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from schemas.chat import Level
from schemas.summaries import Body, Rule, Summary, Tier
from services.summaries.extractive import drafting
from services.summaries.extractive.drafting import Plan
from services.summaries.extractive.sources import of_messages, of_summaries
from services.summaries.material import fair_limit
from services.summaries.port import Draft, SourceMessage
from services.summaries.render import render
from services.summaries.rules import find_rules
from services.tokens.counter import TokenCounter, default_counter

MODEL = "extractive"
PROMPT_VERSION = "extractive-1"


_AGAIN = 0.05
"""What a word is worth that another line has: in a long memory, known words still tell new things."""


READ_TOKENS = 24_000
"""Tokens of a chunk that are weighed; choosing among a mebibyte would hold up the other chats for ten seconds."""


def readable(messages: Sequence[SourceMessage]) -> Sequence[SourceMessage]:
    """The longest messages without their middle, where there is too much; rules are looked for in all of it."""
    limit = fair_limit([message.tokens for message in messages], READ_TOKENS)
    return [
        message if message.tokens <= limit else message._replace(text=_ends(message, limit))
        for message in messages
    ]


def _ends(message: SourceMessage, limit: int) -> str:
    half = len(message.text) * limit // message.tokens // 2
    # a line end: no clause is made of both parts
    return f"{message.text[:half]}\n{message.text[len(message.text) - half :]}"


class _Taste(NamedTuple):
    """What a level changes (S3). `share` of the budget that is used; `oldest` is the worth of the oldest clause
    relative to the newest one; `scene` multiplies the value of the first clause of a message; `least` is the value
    per token under which a clause is a detail, as a share of the median."""

    share: float
    oldest: float
    scene: float
    least: float


_TASTES = {
    Level.key_events: _Taste(share=0.6, oldest=0.3, scene=1.0, least=1.0),
    Level.balanced: _Taste(share=1.0, oldest=0.6, scene=1.0, least=0.6),
    Level.detailed: _Taste(share=1.0, oldest=0.8, scene=1.5, least=0.4),
}


class Extractive:
    """Deterministic, without a model or a network. Never raises for any text; a budget that holds no clause gives an
    empty body (with its rules)."""

    def __init__(self, count: TokenCounter | None = None) -> None:
        self._count = count or default_counter()

    @property
    def model(self) -> str:
        return MODEL

    async def chunk(self, messages: Sequence[SourceMessage], *, level: Level, budget: int) -> Draft:
        rules = find_rules(messages)
        messages = readable(messages)
        taste = _TASTES[level]
        body = drafting.draft(
            of_messages(messages, rules),
            Plan(
                budget=int(budget * taste.share),
                new_message=taste.scene,
                least=taste.least,
                sections=budget >= drafting.SECTIONS_FROM,
            ),
            self._count,
        )
        return self._draft(body, rules, sum(message.tokens for message in messages))

    async def merge(self, sources: Sequence[Summary], *, tier: Tier, level: Level, budget: int) -> Draft:
        taste = _TASTES[level]
        plan = Plan(
            budget=int(budget * taste.share), new_message=taste.scene, again=_AGAIN, oldest=taste.oldest
        )
        return self._of_summaries(sources, plan)

    async def compress(self, source: Summary, *, level: Level, budget: int) -> Draft:
        taste = _TASTES[level]
        plan = Plan(
            budget=budget, new_message=taste.scene, again=_AGAIN, oldest=taste.oldest / 2, periods=True
        )
        return self._of_summaries([source], plan)

    async def close(self) -> None:
        """Nothing is held."""

    def _of_summaries(self, sources: Sequence[Summary], plan: Plan) -> Draft:
        body = drafting.draft(of_summaries(sources), plan, self._count)
        kept: dict[tuple[str, str], Rule] = {}
        for source in sources:
            for rule in source.body.rules:
                kept.setdefault((rule.author, rule.quote), rule)
        return self._draft(body, tuple(kept.values()), sum(source.tokens for source in sources))

    def _draft(self, body: Body, rules: tuple[Rule, ...], tokens_in: int) -> Draft:
        full = body.model_copy(update={"rules": rules})
        return Draft(
            body=full,
            model=MODEL,
            prompt_version=PROMPT_VERSION,
            tokens_in=tokens_in,
            tokens_out=self._count(render(full)),
        )
