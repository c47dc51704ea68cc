"""The documentation is true where it names something: links, commands, targets, settings, metrics, tests, keys."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer

from services.gateway.metrics import METRICS as GATEWAY_METRICS
from services.metrics import METRICS, Metric
from services.settings_sources import known
from services.state.keys import ChatKeys
from streams.cli.main import app
from streams.pipeline import AGENTS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "examples/*.md", "infra/**/*.md")
    for path in ROOT.glob(pattern)
    if not any(part.startswith(".") or part == "node_modules" for part in path.relative_to(ROOT).parts)
)
MADE = ("sh", "python", "js", "json", "sql", "")
"""Languages of the fenced blocks that are used."""


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


each_document = pytest.mark.parametrize("document", DOCUMENTS, ids=name)


def text(document: Path) -> str:
    return document.read_text(encoding="utf-8")


def fenced(document: Path) -> Iterator[tuple[str, str]]:
    """Language and content of each fenced block."""
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", text(document), re.DOTALL | re.MULTILINE)


def prose(document: Path) -> str:
    """The text without fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text(document), flags=re.DOTALL | re.MULTILINE)


@cache
def anchors(document: Path) -> frozenset[str]:
    """Fragments of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(document), re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings)


@each_document
def test_every_link_leads_somewhere(document: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, fragment = target.partition("#")
        there = (document.parent / path).resolve() if path else document
        if not there.exists() or (fragment and fragment not in anchors(there)):
            broken.append(target)
    assert not broken


def test_every_document_of_the_folder_is_reachable() -> None:
    """From the README, over any number of links; a folder that is linked to counts with what is in it."""
    seen, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        document = waiting.pop()
        if document in seen:
            continue
        seen.add(document)
        for target in re.findall(r"\]\(([^)\s#]+)", prose(document)):
            there = (document.parent / target).resolve()
            waiting += there.glob("*.md") if there.is_dir() else [there] if there.suffix == ".md" else []
    assert {name(path) for path in DOCUMENTS} - {name(path) for path in seen} == set()


@each_document
def test_every_target_of_make_exists(document: Path) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    pieces = [code for code in re.findall(r"`([^`\n]+)`", prose(document)) if code.startswith("make ")]
    pieces += [
        line for language, block in fenced(document) if language == "sh" for line in block.splitlines()
    ]
    for piece in pieces:
        if piece.startswith("make "):
            named = piece.split("#")[0].split()[1:]
            assert set(named) <= targets, piece


def commands(document: Path) -> Iterator[list[str]]:
    """Words of each `afterturn ...` in a shell block or between backticks."""
    found = re.findall(r"`(afterturn [^`]+)`", prose(document))
    for language, block in fenced(document):
        if language == "sh":
            lines = block.replace("\\\n", " ").splitlines()
            found += [
                match[1] for line in lines if (match := re.match(r"(?:[A-Z_]+=\S+ )*(afterturn .*)", line))
            ]
    for command in found:
        words = shlex.split(" ".join(command.split()), comments=True)[1:]
        yield list(_until(words, {"&&", "|", ">", ";"}))


def _until(words: Sequence[str], ends: set[str]) -> Iterator[str]:
    for word in words:
        if word in ends or word == "...":
            return
        yield word


def wrong(words: Sequence[str]) -> str | None:
    """What of this command line the command does not have."""
    command: Any = typer.main.get_command(app)
    words = list(words)
    while hasattr(command, "get_command"):
        if not words:
            return None
        found = command.get_command(None, words[0])
        if found is None:
            return f"no command {words[0]}"
        command, words = found, words[1:]
    flags = {option: parameter for parameter in command.params for option in parameter.opts}
    places = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    given = 0
    while words:
        word = words.pop(0)
        if word.startswith("-"):
            if word not in flags:
                return f"no option {word}"
            if not flags[word].is_flag and words:
                words.pop(0)
            continue
        given += 1
        if not places or (given > len(places) and places[-1].nargs != -1):
            return f"{word} is one argument too many"
    return None


@each_document
def test_every_command_is_one_that_the_cli_has(document: Path) -> None:
    problems = [f"{' '.join(words)}: {problem}" for words in commands(document) if (problem := wrong(words))]
    assert not problems


@pytest.mark.parametrize(
    "line", ["upp", "worker window more", "up --dat x", "dlq lists", "topics apply --all"]
)
def test_a_command_that_the_cli_has_not_is_noticed(line: str) -> None:
    assert wrong(line.split())


def test_every_worker_that_is_named_is_an_agent() -> None:
    named = {
        words[1]
        for document in DOCUMENTS
        for words in commands(document)
        if words[:1] == ["worker"] and words[1:]
    }
    assert named - {"NAME"} == set(AGENTS)


@each_document
def test_every_setting_exists(document: Path) -> None:
    names = set(re.findall(r"\bAFTERTURN_[A-Z_]*[A-Z]\b", text(document)))
    assert {each for each in names if not known(each)} == set()


def table(metrics: Sequence[Metric]) -> str:
    """As it has to stand in docs/operations.md."""
    lines = ["| metric | kind | unit | labels | meaning |", "|---|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(
            f"| `afterturn_{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.meaning} |"
        )
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("mark", "metrics"), [("agents", METRICS), ("the gateway", GATEWAY_METRICS)], ids=["agents", "gateway"]
)
def test_the_tables_of_metrics_are_current(mark: str, metrics: Sequence[Metric]) -> None:
    page = text(ROOT / "docs" / "operations.md")
    match = re.search(rf"<!-- metrics of {mark} -->\n(.*?)\n<!-- end -->", page, re.DOTALL)
    assert match is not None
    assert match[1] == table(metrics)


@each_document
def test_every_metric_exists(document: Path) -> None:
    suffixes = r"(?:_bucket|_sum|_count)?$"
    metrics = {f"afterturn_{metric.name}" for metric in (*METRICS, *GATEWAY_METRICS)}
    named = {re.sub(suffixes, "", each) for each in re.findall(r"\bafterturn_[a-z_]+", text(document))}
    assert named <= metrics


@each_document
def test_every_test_that_is_named_exists(document: Path) -> None:
    missing = []
    for path, test in re.findall(r"\b(tests/[\w/]+\.py)(?:::(\w+))?", text(document)):
        there = ROOT / path
        defined = (
            re.findall(r"^(?:async )?def (test_\w+)", text(there), re.MULTILINE) if there.exists() else []
        )
        if not there.exists() or (test and test not in defined):
            missing.append(f"{path}::{test}")
    assert not missing


@each_document
def test_every_file_that_is_named_exists(document: Path) -> None:
    """Paths from the root of the repository, as code or in a sentence."""
    roots = "streams|schemas|services|infra|docs|examples"
    paths = re.findall(rf"(?<![\w/.-])((?:{roots})/[\w./-]*\w(?:/|\.\w+))", prose(document))
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_architecture_names_every_key_of_a_chat() -> None:
    page = text(ROOT / "docs" / "architecture.md")
    suffixes = {key.rpartition(":")[2] for key in ChatKeys.of("c")}
    assert {suffix for suffix in suffixes if f"| `:{suffix}` |" not in page} == set()


@each_document
def test_fenced_blocks_can_be_read(document: Path) -> None:
    """Python and shell parse; the languages are those of `MADE`."""
    for language, block in fenced(document):
        assert language in MADE
        if language == "python":
            ast.parse(block)
        if language == "sh":
            subprocess.run(["bash", "-n"], input=block.encode(), check=True, timeout=10)


@each_document
def test_nothing_of_a_workplace(document: Path) -> None:
    """The product alone: no path of somebody's machine, no number of an issue, no word about who wrote it where."""
    found = re.findall(
        r"/(?:home|mnt|root|work)/|/tmp/(?!scratch)|\bissues? \d+|#\d+\b|\bTODO\b|\bFIXME\b|\bsubagent\w*",
        text(document),
    )
    assert not found
    beside = {name for name in re.findall(r"\.\./([\w.-]*\w)", text(document)) if not (ROOT / name).exists()}
    assert not beside, "folders that are not the project's"


def test_decisions_have_the_three_parts_and_consecutive_numbers() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [path.name[:4] for path in decisions] == [
        f"{number:04}" for number in range(1, len(decisions) + 1)
    ]
    for path in decisions:
        first, *_ = text(path).splitlines()
        assert first.startswith(f"# {path.name[:4]}: ")
        assert re.findall(r"^## (.+)$", text(path), re.MULTILINE) == ["Context", "Decision", "Consequences"]
