"""What commands share: settings with readable errors, logs, the event loop."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer
import uvloop
from aiokafka.errors import KafkaError
from pydantic import ValidationError
from redis.exceptions import RedisError

from infra.stack import DataInUse, KafkaUnavailable, StartFailed
from infra.topics import TopicsDiffer
from services.credits.clickhouse import AddressError
from services.credits.migrations import MigrationError
from services.credits.policy import PriceError
from services.failures import Fatal, Transient
from services.settings import Settings
from streams import logs

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
    DataInUse, StartFailed, KafkaUnavailable, TopicsDiffer, AddressError, MigrationError, PriceError, Fatal, Transient,
)  # fmt: skip


def fail(message: str, code: int = 1) -> NoReturn:
    """End with one clear line on standard error."""
    typer.echo(f"afterturn: {message}", err=True)
    raise typer.Exit(code)


def load_settings(file: Path | None, **overrides: Any) -> Settings:
    """Settings and logs. A wrong setting names itself and ends the command with code 2."""
    try:
        settings = Settings(_env_file=file, **{k: v for k, v in overrides.items() if v is not None})
    except ValidationError as error:
        problems = [f"{variable(p['loc'])}: {p['msg']}" for p in error.errors(include_url=False)]
        fail("wrong settings\n  " + "\n  ".join(problems), 2)
    unknown = sorted(name for name in os.environ if name.startswith("AFTERTURN_") and not known(name))
    if unknown:
        fail(f"unknown settings: {', '.join(unknown)}", 2)
    logs.configure(settings.log_level)
    return settings


def variable(location: tuple[int | str, ...]) -> str:
    """The environment variable behind a field."""
    name, *rest = map(str, location)
    full = name if name.upper().startswith(("OPENAI_", "AFTERTURN_")) else f"AFTERTURN_{name.upper()}"
    return ".".join((full, *rest))


def known(name: str) -> bool:
    """Whether an AFTERTURN_ variable is a setting, or one that only the tests read."""
    field = name.removeprefix("AFTERTURN_").lower()
    return field in Settings.model_fields or field.startswith("test_")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end; what can go wrong outside ends the command with code 1 and one line."""
    try:
        return uvloop.run(work)
    except _REFUSALS as error:
        fail(str(error))
    except RedisError as error:
        fail(f"Redis: {type(error).__name__}: {error}")
    except KafkaError as error:
        fail(f"Kafka: {type(error).__name__}: {error}")
    except (ValueError, OSError) as error:
        fail(str(error))
