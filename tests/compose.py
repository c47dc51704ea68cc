"""docker-compose.yml as a typed value: only what the Compose specification has, and of that only what we use.

A key that is not here is either a slip of the pen or something new, to be added with its type.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docker-compose.yml"

PINNED = r"^[a-z0-9./-]+:v?\d+(\.\d+){2,3}(-[a-z]+)*$"
"""An image with the tag of one exact release (three or four numbers)."""

Duration = Annotated[str, StringConstraints(pattern=r"^(\d+(ms|s|m|h))+$")]
Port = Annotated[str, StringConstraints(pattern=r"^127\.0\.0\.1:\d+:\d+$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]*$")]
Mount = Annotated[str, StringConstraints(pattern=r"^(\./[\w./-]+|[a-z]+):/[\w./-]+(:ro)?$")]


class Strict(BaseModel):
    """No key that is not declared, and no silent conversion: YAML's `yes` is not a string."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Build(Strict):
    context: str
    dockerfile: str


class Healthcheck(Strict):
    test: list[str] = Field(min_length=2)
    interval: Duration
    timeout: Duration
    retries: int
    start_period: Duration | None = None


class Dependency(Strict):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Limit(Strict):
    soft: int
    hard: int


class Service(Strict):
    image: Annotated[str, StringConstraints(pattern=PINNED)]
    build: Build | None = None
    command: list[str] | None = None
    environment: dict[Variable, str] = {}
    ports: list[Port] = []
    volumes: list[Mount] = []
    depends_on: dict[str, Dependency] = {}
    healthcheck: Healthcheck | None = None
    restart: Literal["no", "unless-stopped"]
    stop_grace_period: Duration | None = None
    ulimits: dict[Literal["nofile"], Limit] = {}
    read_only: bool = False
    tmpfs: list[str] = []
    cap_drop: list[str] = []
    security_opt: list[str] = []


class Compose(Strict):
    name: str
    services: dict[str, Service]
    volumes: dict[str, None]


def load(text: str | None = None) -> Compose:
    """The file (or `text`), its extension fields (`x-...`) dropped after YAML has merged them in."""
    document: dict[str, Any] = yaml.safe_load(FILE.read_text() if text is None else text)
    return Compose.model_validate({key: value for key, value in document.items() if not key.startswith("x-")})


_REFERENCE = re.compile(r"\$\{(\w+)(?::([-?])([^}]*))?\}")


def references(value: str) -> set[str]:
    """Names of the variables that a value takes from .env."""
    return {match[1] for match in _REFERENCE.finditer(value)}


def filled(value: str, variables: dict[str, str]) -> str:
    """The value as Compose would fill it in. Raises KeyError for a required variable that is empty or missing."""

    def fill(match: re.Match[str]) -> str:
        given = variables.get(match[1], "")
        if given or match[2] == "-":
            return given or match[3]
        raise KeyError(f"{match[1]}: {match[3]}")

    return _REFERENCE.sub(fill, value)
