"""What the agents of one process share: connections, the token counter, the log's identity."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from aiokafka.errors import KafkaError
from redis.asyncio import Redis

from infra import topics
from services.drafts.extractive import Extractive as ExtractiveDrafter
from services.drafts.port import Drafter
from services.failures import Transient
from services.llm.port import LanguageModel
from services.settings import Settings
from services.summaries.extractive import Extractive
from services.summaries.in_thread import InThread
from services.summaries.port import Summariser
from services.tokens.counter import TokenCounter, default_counter
from streams.runtime.publisher import Publisher, client_options
from streams.runtime.retries import Retries

T = TypeVar("T")

READ_BYTES = 1 << 18

START_BUDGET = 60.0
"""Seconds that a starting process waits for Kafka and its topics."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Opened by `open_resources`, which also closes them."""

    settings: Settings
    redis: Redis
    publisher: Publisher
    counter: TokenCounter
    epochs: dict[str, str] = field(default_factory=dict)


@asynccontextmanager
async def open_resources(settings: Settings) -> AsyncIterator[Resources]:
    """Connect. Raises Transient where Kafka does not answer or has no topics within START_BUDGET."""
    async with AsyncExitStack() as opened:
        redis = Redis.from_url(
            settings.redis,
            socket_timeout=30,
            socket_connect_timeout=5,
            # a whole chat in one read
            socket_read_size=READ_BYTES,
            health_check_interval=30,
        )
        opened.push_async_callback(redis.aclose)
        publisher = Publisher(settings)
        retries = Retries(START_BUDGET)
        await retries.run(lambda: _patient(publisher.start()))
        opened.push_async_callback(publisher.stop)
        epochs = await retries.run(lambda: _patient(_epochs(settings)))
        counter = await asyncio.to_thread(default_counter)
        yield Resources(settings=settings, redis=redis, publisher=publisher, counter=counter, epochs=epochs)


async def _patient(starting: Awaitable[T]) -> T:
    """At the start an outage is waited for within a budget only."""
    try:
        return await starting
    except Transient as error:
        raise Transient(str(error)) from error


async def _epochs(settings: Settings) -> dict[str, str]:
    options = client_options(settings)
    try:
        epochs = await topics.read_epochs(options.pop("bootstrap_servers"), **options)
    except (KafkaError, OSError) as error:
        raise Transient(f"Kafka does not answer: {type(error).__name__}") from error
    missing = [spec.name for spec in topics.wanted() if spec.name not in epochs]
    if missing:
        raise Transient(f"topics are missing, run `afterturn topics apply`: {', '.join(missing)}")
    return epochs


def summariser(settings: Settings, counter: TokenCounter) -> Summariser:
    """The adapter that the settings name."""
    if settings.summary_model == "extractive":
        return InThread(Extractive(counter))
    # imported where they are used: the SDK takes more than a second, and most workers never need it
    from services.summaries.prompted import Prompted

    return Prompted(language_model(settings, counter), counter)


def drafter(settings: Settings, counter: TokenCounter) -> Drafter:
    """What drafts saved memories: the same model, or none."""
    if settings.summary_model == "extractive":
        return ExtractiveDrafter(counter)
    from services.drafts.prompted import Prompted

    return Prompted(language_model(settings, counter))


def language_model(settings: Settings, counter: TokenCounter) -> LanguageModel:
    """The model and endpoint that the settings name."""
    from services.llm.openai import OpenAIModel

    key = settings.openai_api_key
    return OpenAIModel(
        settings.summary_model,
        base_url=settings.openai_base_url,
        api_key=key.get_secret_value() if key else None,
        timeout=settings.model_timeout,
        counter=counter,
    )
