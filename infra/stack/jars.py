"""Apache Kafka's jars, fetched once from Maven Central as infra/kafka/pom.xml says."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

KAFKA = Path(__file__).resolve().parent.parent / "kafka"
POM = KAFKA / "pom.xml"
READY = ".ready"
"""File in the folder of jars with the SHA-256 of the pom they came from: written last."""

_PROGRESS_S = 2.0
_DEADLINE_S = 600.0


class KafkaUnavailable(RuntimeError):
    """This machine cannot run Apache Kafka without Docker; the message says what is missing."""


def missing() -> str | None:
    """What is not there (`java`, or `mvn` while the jars are not fetched yet), or None when it can run."""
    wanted = ["java"] if _complete(folder()) else ["java", "mvn"]
    absent = [program for program in wanted if shutil.which(program) is None]
    return f"Apache Kafka needs {' and '.join(absent)} on PATH" if absent else None


def folder() -> Path:
    """infra/kafka/lib in a clone; for an installed package the user's cache folder."""
    root = KAFKA.parent.parent
    if (root / "pyproject.toml").is_file() and os.access(KAFKA, os.W_OK):
        return KAFKA / "lib"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "afterturn" / "kafka"


def fetch(report: Callable[[str], None] | None = None) -> Path:
    """The folder with the jars, which are fetched if they are not there yet (54 MB, about 10 s).

    When it takes more than two seconds, `report` is told so (by default a line on standard error).
    Raises KafkaUnavailable with Maven's own words when it fails.
    """
    target = folder()
    if _complete(target):
        return target
    reason = missing()
    if reason:
        raise KafkaUnavailable(reason)
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one process fetches, the others wait for it
        if not _complete(target):
            _download(target, report or _to_stderr)
    return target


def _complete(target: Path) -> bool:
    marker = target / READY
    return marker.is_file() and marker.read_text() == _version()


def _version() -> str:
    return hashlib.sha256(POM.read_bytes()).hexdigest()


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _download(target: Path, report: Callable[[str], None]) -> None:
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        _copy_dependencies(fresh, report)
        (fresh / READY).write_text(_version())
        shutil.rmtree(target, ignore_errors=True)
        fresh.chmod(0o755)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _copy_dependencies(fresh: Path, report: Callable[[str], None]) -> None:
    command = [
        "mvn",
        "-q",
        "-B",
        "-f",
        str(POM),
        "dependency:copy-dependencies",
        f"-DoutputDirectory={fresh}",
    ]
    begin = time.monotonic()
    with (
        tempfile.TemporaryFile() as output,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT) as maven,
    ):
        while True:
            try:
                code = maven.wait(_PROGRESS_S)
                break
            except subprocess.TimeoutExpired:
                seconds = time.monotonic() - begin
                if seconds > _DEADLINE_S:
                    maven.kill()
                    raise KafkaUnavailable(f"Maven took more than {_DEADLINE_S:g} s") from None
                done = sum(1 for _ in fresh.glob("*.jar"))
                report(
                    f"Fetching Apache Kafka from Maven Central (54 MB, once): {done} files, {seconds:.0f} s"
                )
        if code != 0:
            output.seek(0)
            words = output.read()[-2_000:].decode(errors="replace")
            raise KafkaUnavailable(f"Maven could not fetch Apache Kafka (exit code {code}):\n{words}")
