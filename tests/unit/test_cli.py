"""The command line: help of every command, and what is refused before anything starts."""

from __future__ import annotations

import socket
from importlib.metadata import version
from pathlib import Path

import pytest
import typer
from aiohttp import web
from aiohttp.test_utils import RawTestServer
from typer.testing import CliRunner

from schemas.turns import TURN_EVENT
from services.audit.report import Check, Finding, Report, Severity
from services.imports.port import Unusable
from services.imports.service import Report as ImportReport
from streams.cli import audit, imports
from streams.cli.asking import ask
from streams.cli.main import app
from streams.cli.start import run
from streams.pipeline import AGENTS

COMMANDS = (
    "demo",
    "up",
    "worker",
    "gateway",
    "migrate",
    "topics",
    "import",
    "audit",
    "verify-deleted",
    "dlq",
    "settings",
)
INNER = (("topics", "apply"), ("dlq", "list"), ("dlq", "show"), ("dlq", "replay"), ("dlq", "drop"))


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Runs a command in this process, on a wide terminal without colours."""
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    return CliRunner()


def test_help_names_every_command(cli: CliRunner) -> None:
    result = cli.invoke(app, ["--help"])
    assert result.exit_code == 0
    names = {line.split()[1] for line in result.output.splitlines() if line.startswith("│ ")}
    assert names - {"--help", "--version"} == set(COMMANDS)


@pytest.mark.parametrize("command", [*((name,) for name in COMMANDS), *INNER], ids=" ".join)
def test_every_command_has_help(cli: CliRunner, command: tuple[str, ...]) -> None:
    result = cli.invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert f"Usage: {typer.main.get_command(app).name} {' '.join(command)}" in result.output
    assert len(result.output.splitlines()) > 5


def test_an_unknown_agent_is_refused_with_the_list(cli: CliRunner) -> None:
    result = cli.invoke(app, ["worker", "windows"])
    assert result.exit_code == 2
    assert all(name in result.output for name in AGENTS)


@pytest.mark.parametrize(
    "command",
    [
        ["up"], ["worker", "window"], ["gateway"], ["migrate"], ["topics", "apply"], ["audit"], ["dlq", "list"],
        ["dlq", "replay", "--all"], ["import", __file__], ["settings"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_wrong_settings_stop_the_start(
    cli: CliRunner, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.setenv("AFTERTURN_BATCH", "secret-word")
    result = cli.invoke(app, command)
    assert result.exit_code == 2
    assert "AFTERTURN_BATCH: Input should be a valid integer" in result.output
    assert "secret-word" not in result.output


def test_an_unknown_variable_stops_the_start(cli: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AFTERTURN_BACH", "1")
    result = cli.invoke(app, ["settings"])
    assert result.exit_code == 2
    assert "AFTERTURN_BACH: there is no such setting" in result.output


def test_a_wrong_price_table_is_a_wrong_setting(cli: CliRunner, tmp_path: Path) -> None:
    file = tmp_path / "settings"
    file.write_text(f"AFTERTURN_PRICES={tmp_path / 'prices.yaml'}\n")
    result = cli.invoke(app, ["settings", "--settings", str(file)])
    assert result.exit_code == 2
    assert "AFTERTURN_PRICES" in result.output


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["dlq", "replay"], "give ids, or --all"),
        (["dlq", "drop"], "give ids, or --all"),
        (["dlq", "replay", "window:0:0", "--all"], "give ids, or --all"),
        (["dlq", "list", "--kind", "odd"], "'poison', 'parked', 'unexpected'"),
        (["audit", "--gateway", "http://127.0.0.1:1", "--data", "."], "--data or --gateway"),
        (["audit", "--gateway", "http://127.0.0.1:1"], "--token"),
        (["audit", "--data", "."], "was not kept by"),
        (["verify-deleted", "c1", "--gateway", "http://127.0.0.1:1", "--data", "."], "--data or --gateway"),
        (["verify-deleted", "c1", "--data", "."], "was not kept by"),
        (
            ["verify-deleted", "c1", "--token", "t", "--gateway", "127.0.0.1:8080"],
            "is not the URL of a gateway",
        ),
        (["verify-deleted", "c1 "], "is no id of a chat"),
        (["verify-deleted", ""], "is no id of a chat"),
        (["import", "no-such-file"], "no-such-file"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_makes_no_sense_is_refused(cli: CliRunner, command: list[str], said: str) -> None:
    result = cli.invoke(app, command)
    assert result.exit_code == 2
    assert said in result.output


def test_a_taken_port_is_told_before_anything_starts(cli: CliRunner) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = cli.invoke(app, ["up", "--port", str(port)])
    assert result.exit_code == 2
    assert result.output.startswith(
        f"afterturn: AFTERTURN_GATEWAY_PORT: 127.0.0.1:{port} cannot be listened on:"
    )


@pytest.mark.parametrize("command", [["import", __file__], ["dlq", "list"]], ids=" ".join)
def test_data_of_a_stack_that_rests_says_so(cli: CliRunner, tmp_path: Path, command: list[str]) -> None:
    # a killed process leaves its addresses, and a lock that nobody holds
    (tmp_path / "running.json").write_text(
        '{"pid": 1, "kafka": "127.0.0.1:1", "redis": "", "gateway": "", "token": null}'
    )
    (tmp_path / "lock").write_text("1")
    result = cli.invoke(app, [*command, "--data", str(tmp_path)])
    assert result.exit_code == 1
    assert "no stack runs on" in result.output


def test_what_cannot_be_understood_is_named_and_never_quoted(capsys: pytest.CaptureFixture[str]) -> None:
    async def damaged() -> None:
        TURN_EVENT.validate_json(b'{"type": "chat.rewound", "id": "e1", "chat": "a secret"}')

    with pytest.raises(typer.Exit):
        run(damaged())
    said = capsys.readouterr().err
    assert "chat: Input should be" in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (502, "<html>Bad Gateway</html>", "answers 502: without saying why"),
        (
            403,
            '{"detail": "An audit needs a service token."}',
            "answers 403: An audit needs a service token.",
        ),
        (200, "<html></html>", "is not a gateway of Afterturn"),
        (200, '["findings"]', "is not a gateway of Afterturn"),
    ],
)
async def test_an_answer_that_is_no_report_says_what_it_is(
    status: int, body: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(status=status, text=body)

    async with RawTestServer(answer) as server:
        with pytest.raises(typer.Exit):
            await ask(str(server.make_url("/")), "/v1/audit", "t", {}, "findings")
    assert said in capsys.readouterr().err


def test_an_audit_prints_what_it_read_and_what_is_wrong() -> None:
    report = Report(at_rest=True, ledger=False)
    report.read.chats = 1_200
    report.add(Finding("c1", Check.coverage, "message 7 is nowhere"))
    report.add(Finding("", Check.usage, "2 repeated rows are stored", Severity.warning))
    report.add(Finding("", Check.memories, "global has 101 unpinned entries", user="u1"))
    lines = audit.lines(report.as_dict())
    assert lines[0].startswith("read (at rest): 1,200 chats, ")
    assert lines[1] == "the ledger was not read"
    assert lines[2] == "error   coverage   chat c1: message 7 is nowhere"
    assert lines[3] == "warning usage      ledger: 2 repeated rows are stored"
    assert lines[4] == "error   memories   user u1: global has 101 unpinned entries"
    assert lines[5] == "WRONG: 2 errors, 1 warnings"


def test_the_version_is_that_of_the_package(cli: CliRunner) -> None:
    result = cli.invoke(app, ["--version"])
    assert (result.exit_code, result.output) == (0, f"afterturn {version('afterturn')}\n")


def test_an_import_names_its_first_chats() -> None:
    report = ImportReport(format="telegram")
    for number in range(22):
        report.chat(f"telegram-{number}")
    shown = imports.summary(report)
    assert shown[0] == "format telegram: 22 chats, 0 turns, 0 messages published"
    assert (shown[1], shown[20]) == ("  chat telegram-0", "  chat telegram-19")
    assert shown[21:] == ["  and 2 more chats"]


def test_an_import_tells_what_it_could_not_use() -> None:
    report = ImportReport(format="jsonl", turns=2, messages=4)
    report.chat("jsonl-1")
    for line in range(30):
        report.unusable(Unusable(f"line {line}", "no text"))
    lines = imports.summary(report)
    assert lines[0] == "format jsonl: 1 chats, 2 turns, 4 messages published"
    assert lines[1] == "  chat jsonl-1"
    assert lines[2] == "30 could not be used:"
    assert lines[3] == "  line 0: no text"
    assert lines[-2:] == ["  and 10 more; of all 30:", "  30 x no text"]
