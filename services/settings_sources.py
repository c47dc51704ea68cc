"""Where settings come from, and everything that is wrong with them, by name and without their values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dotenv.parser import parse_stream
from pydantic import ValidationError
from pydantic_settings import SettingsError

from services.settings import Settings

PREFIX = "AFTERTURN_"
_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")


class WrongSettings(ValueError):
    """`problems` has a line for each; none quotes a value."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("wrong settings\n  " + "\n  ".join(self.problems))


def variable(field: str) -> str:
    """The environment variable of a field."""
    alias = Settings.model_fields[field].validation_alias
    return alias if isinstance(alias, str) else PREFIX + field.upper()


def variables() -> dict[str, str]:
    """Environment variable -> field, in the order of the model."""
    return {variable(field): field for field in Settings.model_fields}


def known(name: str) -> bool:
    """Whether a variable is a setting, or one that only the tests read."""
    return name in variables() or name.startswith(f"{PREFIX}TEST_")


def load(file: Path | None, environment: Mapping[str, str], overrides: Mapping[str, Any]) -> Settings:
    """Overrides (by field) win over the environment, that over the file, that over the defaults.

    `environment` is looked through for unknown AFTERTURN_ names; values are read from the process's own.
    Raises WrongSettings.
    """
    problems = [
        f"{name}: there is no such setting"
        for name in sorted(environment)
        if name.upper().startswith(PREFIX) and not known(name.upper())
    ]
    if file is not None:
        problems += _file_problems(file)
    if problems:
        raise WrongSettings(problems)
    try:
        return Settings(_env_file=file, **overrides)
    except ValidationError as error:
        raise WrongSettings(map(_problem, error.errors(include_url=False, include_input=False))) from None
    except SettingsError as error:
        # a value that should be JSON and is not; the message names the field, its cause has the value
        named = [name for name, field in variables().items() if f'"{field}"' in str(error)]
        raise WrongSettings([f"{', '.join(named) or 'a setting'}: is not JSON"]) from None


def _file_problems(file: Path) -> Iterator[str]:
    """What is wrong with the file itself: lines that say nothing, unknown and repeated names."""
    seen: dict[str, int] = {}
    try:
        with file.open(encoding="utf-8") as stream:
            for binding in parse_stream(stream):
                text = binding.original.string
                line = binding.original.line + len(text) - len(text.lstrip("\n"))
                if binding.error or (binding.key is not None and binding.value is None):
                    yield f"{file}, line {line}: is not NAME=value"
                elif binding.key is None:  # a comment, an empty line
                    continue
                elif binding.key not in variables():
                    # a line of a key file looks like a name, too: only what is written like a setting is shown
                    shown = f"{binding.key}: " if _NAME.fullmatch(binding.key) else ""
                    yield f"{file}, line {line}: {shown}there is no such setting"
                elif binding.key in seen:
                    yield f"{file}, line {line}: {binding.key}: is set in line {seen[binding.key]} already"
                else:
                    seen[binding.key] = line
    except OSError as error:
        yield f"{file}: {error.strerror}"
    except UnicodeDecodeError:
        yield f"{file}: is not UTF-8 text"


def _problem(error: Any) -> str:
    first, *rest = map(str, error["loc"]) if error["loc"] else ("settings",)
    name = variable(first) if first in Settings.model_fields else first
    return f"{'.'.join((name, *rest))}: {error['msg'].removeprefix('Value error, ')}"
