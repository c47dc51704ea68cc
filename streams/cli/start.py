"""What commands share: settings with readable errors, logs, the event loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
import uvloop
from aiokafka.errors import KafkaError
from pydantic import ValidationError
from redis.exceptions import RedisError

from infra.stack import DataInUse, KafkaUnavailable, StartFailed
from infra.topic_metadata import BrokerTooOld
from infra.topics import TopicsDiffer
from services import settings_sources
from services.credits.clickhouse import AddressError
from services.credits.migrations import MigrationError
from services.credits.policy import PriceError
from services.failures import Fatal, Poison, Transient
from services.settings import Settings
from services.settings_sources import WrongSettings
from streams import logs
from streams.runtime.decoding import reason

T = TypeVar("T")

SettingsFile = Annotated[
    Path | None,
    typer.Option(
        "--settings",
        help="File with settings, NAME=value a line; the environment wins.",
        exists=True,
        dir_okay=False,
    ),
]

_REFUSALS = (
    BrokerTooOld, DataInUse, StartFailed, KafkaUnavailable, TopicsDiffer, MigrationError, Fatal, Poison, Transient,
)  # fmt: skip


def fail(message: str, code: int = 1) -> NoReturn:
    """End with one clear line on standard error."""
    typer.echo(f"afterturn: {message}", err=True)
    raise typer.Exit(code)


async def entered(
    opened: AsyncExitStack, context: AbstractAsyncContextManager[T], stop: asyncio.Event
) -> T | None:
    """What the context gives, which `opened` will leave; None where `stop` was set before. Raises what entering raises."""
    entering = asyncio.ensure_future(opened.enter_async_context(context))
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({entering, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if entering.done():
        return entering.result()
    entering.cancel()
    await asyncio.wait({entering})
    return None


def load_settings(file: Path | None, **overrides: Any) -> Settings:
    """Settings and logs. A wrong setting names itself and ends the command with code 2."""
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        settings = settings_sources.load(file, os.environ, given)
    except WrongSettings as error:
        fail(str(error), 2)
    logs.configure(settings.log_level)
    return settings


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; what can go wrong outside ends the command with code 1 and one line, a wrong setting with 2."""
    try:
        return uvloop.run(work)
    except (AddressError, PriceError) as error:
        fail(f"wrong settings\n  {error}", 2)
    except _REFUSALS as error:
        fail(str(error))
    except RedisError as error:
        fail(f"Redis: {type(error).__name__}: {error}")
    except KafkaError as error:
        fail(f"Kafka: {type(error).__name__}: {error}")
    except ValidationError as error:
        # its own message quotes what it refuses, which may be the text of a chat
        fail(f"{error.title} cannot be understood: {reason(error)}")
    except (ValueError, OSError) as error:
        fail(str(error))
