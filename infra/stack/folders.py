"""Folders that belong to one stack: a lock file in each is held for as long as the stack runs.

The lock goes with the process, however it ends. A temporary folder whose process was killed is removed by the next
stack that starts.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

LOCK = "lock"
_PREFIX = "afterturn-stack-"


class DataInUse(RuntimeError):
    """Another stack uses the folder."""


@contextmanager
def kept(folder: Path) -> Iterator[Path]:
    """The folder, made if it is not there, for this process alone. Raises DataInUse."""
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        yield folder


@contextmanager
def temporary() -> Iterator[Path]:
    """A new folder that is removed at the end."""
    parent = Path(tempfile.gettempdir())
    _sweep(parent)
    fresh = Path(tempfile.mkdtemp(prefix=f".{_PREFIX}"))
    folder = parent / fresh.name[1:]
    try:
        with _locked(fresh):
            fresh.rename(folder)  # locked before it has the name that a sweep looks for
            yield folder
    finally:
        for each in (fresh, folder):
            shutil.rmtree(each, ignore_errors=True)


def _sweep(parent: Path) -> None:
    """Remove what killed stacks of this user have left."""
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(DataInUse, FileNotFoundError):
            if folder.stat().st_uid == os.getuid() and (folder / LOCK).is_file():
                with _locked(folder):
                    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[IO[str]]:
    with (folder / LOCK).open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            raise DataInUse(f"{folder} is in use by another stack (process {owner})") from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        yield lock
