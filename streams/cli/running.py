"""Finds the stack that `afterturn up --data DIR` runs, so that other commands need no addresses."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from services.settings import Settings
from streams.cli.start import fail

DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data", help="Folder of an `afterturn up --data DIR`, instead of addresses.", file_okay=False
    ),
]


class Address(NamedTuple):
    """Where a running stack listens. `token` is None where tokens were configured."""

    pid: int
    kafka: str
    redis: str
    gateway: str
    token: str | None


def find(data: Path) -> Address | None:
    """The stack that runs on this folder, or None where it rests: what a killed one left behind does not count."""
    try:
        content = json.loads((data / "running.json").read_text(encoding="utf-8"))
        address = Address(**{field: content[field] for field in Address._fields})
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError):
        # a killed process may leave half of it
        return None if not _locked(data) else fail(f"{data / 'running.json'} cannot be understood")
    return address if _locked(data) else None


def on_running(settings: Settings, data: Path | None) -> Settings:
    """The settings with the addresses of the stack that runs on this folder. Ends the command where none does."""
    if data is None:
        return settings
    address = find(data)
    if address is None:
        fail(f"no stack runs on {data}; start it with `afterturn up --data {data}`")
    return settings.model_copy(update={"kafka": address.kafka, "redis": address.redis})


def _locked(data: Path) -> bool:
    """Whether a process has the folder (infra/stack/stack.py); its lock ends with it, however it ends."""
    try:
        with (data / "lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
