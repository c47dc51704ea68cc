"""Which programs a stack is made of: Apache Kafka's jars, and the Redis that is taken."""

from __future__ import annotations

import shutil
import threading
import uuid
from pathlib import Path

import pytest

from infra.stack import KafkaUnavailable, apache, jars, valkey

MAVEN = """#!/bin/sh
echo run >> "{calls}"
for argument; do case "$argument" in -DoutputDirectory=*) to="${{argument#*=}}";; esac; done
{body}
"""


class Clone:
    """A clone of the project with a Maven of its own on PATH."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.lib = root / "infra" / "kafka" / "lib"
        self.calls = root / "calls"
        self.bin = root / "bin"
        self.lib.parent.mkdir(parents=True)
        self.bin.mkdir()
        (root / "pyproject.toml").touch()
        self.pom = self.lib.parent / "pom.xml"
        self.pom.write_text("<project/>")
        self.program("java", "#!/bin/sh\n")
        monkeypatch.setattr(jars, "KAFKA", self.lib.parent)
        monkeypatch.setattr(jars, "POM", self.pom)
        monkeypatch.setattr(jars, "_PROGRESS_S", 0.05)
        monkeypatch.setenv("PATH", f"{self.bin}:/usr/bin:/bin")
        self.monkeypatch = monkeypatch

    def program(self, name: str, text: str) -> None:
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def maven(self, body: str) -> None:
        self.program("mvn", MAVEN.format(calls=self.calls, body=body))

    @property
    def fetched(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0

    def left_over(self) -> list[str]:
        return [path.name for path in self.lib.parent.glob(".lib-*")]


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clone:
    return Clone(tmp_path, monkeypatch)


def test_jars_are_fetched_once_for_each_version_of_the_pom(clone: Clone) -> None:
    clone.maven('touch "$to/kafka.jar"')

    assert jars.fetch() == jars.fetch() == clone.lib
    assert clone.fetched == 1
    assert (clone.lib / "kafka.jar").is_file()

    clone.pom.write_text("<project>newer</project>")
    jars.fetch()
    assert clone.fetched == 2
    assert clone.left_over() == []


def test_a_failed_fetch_leaves_nothing_that_could_be_taken_for_a_whole_one(clone: Clone) -> None:
    clone.maven('touch "$to/half.jar"; echo "no route to the repository"; exit 1')

    with pytest.raises(KafkaUnavailable, match=r"exit code 1.*\nno route to the repository"):
        jars.fetch()
    assert not clone.lib.exists()
    assert clone.left_over() == []


def test_jars_without_the_marker_are_fetched_again(clone: Clone) -> None:
    clone.lib.mkdir()
    (clone.lib / "half.jar").touch()
    clone.maven('touch "$to/kafka.jar"')

    jars.fetch()
    assert sorted(path.name for path in clone.lib.iterdir()) == [".ready", "kafka.jar"]


def test_two_at_once_fetch_once(clone: Clone) -> None:
    clone.maven('touch "$to/kafka.jar"')
    threads = [threading.Thread(target=jars.fetch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clone.fetched == 1


def test_a_slow_fetch_tells_how_far_it_is(clone: Clone) -> None:
    gate = clone.root / "gate"
    clone.maven(f'touch "$to/kafka.jar"; while [ ! -e "{gate}" ]; do sleep 0.01; done')
    lines: list[str] = []

    def report(line: str) -> None:
        lines.append(line)
        gate.touch()

    jars.fetch(report)
    assert "Apache Kafka from Maven Central" in lines[0]
    assert ": 1 files" in lines[0]


def test_what_is_missing_is_named(clone: Clone) -> None:
    clone.monkeypatch.setenv("PATH", str(clone.root / "nothing"))
    assert jars.missing() == "Apache Kafka needs java and mvn on PATH"
    with pytest.raises(KafkaUnavailable, match="java and mvn"):
        jars.fetch()


def test_maven_is_not_needed_once_the_jars_are_there(clone: Clone) -> None:
    clone.maven('touch "$to/kafka.jar"')
    jars.fetch()
    (clone.bin / "mvn").unlink()
    clone.monkeypatch.setenv("PATH", str(clone.bin))
    assert jars.missing() is None


def test_an_installed_package_uses_the_cache_folder(clone: Clone) -> None:
    (clone.root / "pyproject.toml").unlink()
    clone.monkeypatch.setenv("XDG_CACHE_HOME", str(clone.root / "cache"))
    clone.maven('touch "$to/kafka.jar"')
    assert jars.fetch() == clone.root / "cache" / "afterturn" / "kafka"


@pytest.mark.parametrize(
    ("version", "taken"),
    [
        ("Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", False),
        ("Redis server v=7.2.0 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64", True),
        ("Redis server v=8.2.1 sha=00000000:1 malloc=jemalloc-5.3.0 bits=64", True),
        ("Valkey server v=8.1.0 sha=00000000:1 malloc=jemalloc-5.3.0 bits=64", True),
        ("something else", False),
    ],
)
def test_a_redis_from_path_is_taken_when_it_is_new_enough(clone: Clone, version: str, taken: bool) -> None:
    clone.program("redis-server", f'#!/bin/sh\necho "{version}"\n')
    assert (valkey.binary() == shutil.which("redis-server")) is taken


def test_without_a_redis_on_path_the_wheel_has_one(clone: Clone) -> None:
    clone.monkeypatch.setenv("PATH", str(clone.root / "nothing"))
    assert Path(valkey.binary()).name == "valkey-server"


def test_a_cluster_id_is_never_taken_for_an_option() -> None:
    ids = iter([uuid.UUID(bytes=b"\xfb" * 16), uuid.UUID(bytes=b"\x01" * 16)])
    assert apache.cluster_id(lambda: next(ids)) == "AQEBAQEBAQEBAQEBAQEBAQ"
    assert next(ids, None) is None, "the first one begins with a dash"
