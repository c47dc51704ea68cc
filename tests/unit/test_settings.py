"""A wrong setting names itself, and no message ever shows a value."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from services.settings import Settings
from services.settings_sources import WrongSettings, known, load, variables

SECRET = "hunter2-and-more-than-thirty-two-bytes"


def settings(
    monkeypatch: pytest.MonkeyPatch,
    environment: Mapping[str, str],
    file: Path | None = None,
    **overrides: Any,
) -> Settings:
    """Settings in a process with this environment."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return load(file, os.environ, overrides)


def written(folder: Path, text: str) -> Path:
    """A settings file."""
    file = folder / "afterturn.env"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("AFTERTURN_BATCH", "many", "valid integer"),
        ("AFTERTURN_BATCH", "0", "greater than or equal to 1"),
        ("AFTERTURN_CHUNK_MESSAGES", "201", "less than or equal to 200"),
        ("AFTERTURN_MODEL_TIMEOUT", "0", "greater than 0"),
        ("AFTERTURN_LOG_LEVEL", "LOUD", "'DEBUG', 'INFO'"),
        ("AFTERTURN_GATEWAY_PORT", "65536", "less than or equal to 65535"),
        ("AFTERTURN_SERVICE_TOKENS", "just-a-token", "is not JSON"),
        ("AFTERTURN_SERVICE_TOKENS", '["a", {}]', "valid string"),
        ("AFTERTURN_KAFKA", "broker", "host:port"),
        ("AFTERTURN_KAFKA", "broker:9092,other:99999", "host:port"),
        ("AFTERTURN_KAFKA_CA", "/nowhere/ca.pem", "does not point to a file"),
        ("AFTERTURN_PRICES", "/nowhere/prices.yaml", "does not point to a file"),
        ("AFTERTURN_REDIS", "127.0.0.1:6379", "redis://"),
        ("AFTERTURN_CLICKHOUSE", "clickhouse:8123", "http://"),
        ("AFTERTURN_CLICKHOUSE", "chdb:", "needs a directory"),
        ("AFTERTURN_USER_TOKEN_SECRET", "short", "32 bytes"),
        ("OPENAI_BASE_URL", "localhost:8000", "http://"),
        ("AFTERTURN_KAFKAA", "127.0.0.1:9092", "no such setting"),
        ("AFTERTURN_OPENAI_API_KEY", "k", "no such setting"),
        ("afterturn_kafkaa", "127.0.0.1:9092", "no such setting"),
    ],
)
def test_a_wrong_variable_names_itself(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str
) -> None:
    with pytest.raises(WrongSettings) as caught:
        settings(monkeypatch, {name: value})
    (problem,) = caught.value.problems
    assert problem.startswith(name)
    assert said in problem


def test_all_wrong_values_are_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongSettings) as caught:
        settings(monkeypatch, {"AFTERTURN_BATCH": "x", "AFTERTURN_BUFFER": "1"})
    assert [problem.split(":")[0] for problem in caught.value.problems] == [
        "AFTERTURN_BATCH",
        "AFTERTURN_BUFFER",
    ]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("AFTERTURN_BATCH", "line 3: is not NAME=value"),
        ("some words", "line 3: is not NAME=value"),
        ("AFTERTURN_BACH=5", "line 3: AFTERTURN_BACH: there is no such setting"),
        ("KAFKA=a:1", "line 3: KAFKA: there is no such setting"),
        ("kafka=a:1", "line 3: there is no such setting"),
        ("AFTERTURN_BUFFER=7", "line 3: AFTERTURN_BUFFER: is set in line 1 already"),
        ("AFTERTURN_BATCH=0", "AFTERTURN_BATCH: Input should be greater than or equal to 1"),
    ],
)
def test_a_wrong_line_of_the_file_names_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, line: str, said: str
) -> None:
    file = written(tmp_path, f"AFTERTURN_BUFFER=5\n\n{line}\n")
    with pytest.raises(WrongSettings) as caught:
        settings(monkeypatch, {}, file)
    (problem,) = caught.value.problems
    assert problem.endswith(said)


@pytest.mark.parametrize("content", [b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_names_itself(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "settings"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(WrongSettings, match=str(file)):
        settings(monkeypatch, {}, file)


def test_file_and_environment_and_options(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "# a comment\nAFTERTURN_BATCH=5\nAFTERTURN_BUFFER=50\nAFTERTURN_GATEWAY_PORT=1\n"
        'OPENAI_BASE_URL=http://model:8000/v1\nexport OPENAI_API_KEY="k e y"\nAFTERTURN_IN_FLIGHT=\n',
    )
    found = settings(
        monkeypatch, {"AFTERTURN_BATCH": "6", "AFTERTURN_GATEWAY_PORT": "2"}, file, gateway_port=3
    )
    assert (found.buffer, found.batch, found.gateway_port) == (50, 6, 3)
    assert found.in_flight == 64, "an empty value is not set"
    assert found.openai_base_url == "http://model:8000/v1"
    assert found.openai_api_key is not None
    assert found.openai_api_key.get_secret_value() == "k e y"


def test_the_environment_wins_over_the_file_for_the_model_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = written(tmp_path, "OPENAI_API_KEY=of-the-file\n")
    found = settings(monkeypatch, {"OPENAI_API_KEY": "of-the-environment"}, file)
    assert found.openai_api_key is not None
    assert found.openai_api_key.get_secret_value() == "of-the-environment"


WITH_SECRETS = {
    "AFTERTURN_REDIS": f"redis://user:{SECRET}@127.0.0.1:6379/0",
    "AFTERTURN_CLICKHOUSE": f"http://user:{SECRET}@127.0.0.1:8123/afterturn",
    "OPENAI_BASE_URL": f"http://user:{SECRET}@127.0.0.1:8000/v1",
    "OPENAI_API_KEY": SECRET,
    "AFTERTURN_KAFKA_PASSWORD": SECRET,
    "AFTERTURN_SERVICE_TOKENS": f'["{SECRET}"]',
    "AFTERTURN_USER_TOKEN_SECRET": SECRET,
}


def test_no_secret_in_the_repr(monkeypatch: pytest.MonkeyPatch) -> None:
    found = settings(monkeypatch, WITH_SECRETS)
    assert SECRET in found.redis
    assert SECRET not in f"{found!r} {found}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # characters that have to be escaped in an address, so that a part of the password is taken for a port
        ("AFTERTURN_REDIS", f"redis://user:{SECRET}/x@127.0.0.1:6379/0"),
        ("AFTERTURN_REDIS", f"redis://user:{SECRET}#x@127.0.0.1:6379/0"),
        ("AFTERTURN_REDIS", f"http://user:{SECRET}@127.0.0.1:6379/0"),
        ("AFTERTURN_CLICKHOUSE", f"http://user:{SECRET}/x@127.0.0.1:8123/afterturn"),
        ("OPENAI_BASE_URL", f"ftp://user:{SECRET}@127.0.0.1"),
        ("AFTERTURN_KAFKA", SECRET),
        ("AFTERTURN_SERVICE_TOKENS", SECRET),
        ("AFTERTURN_SERVICE_TOKENS", f'{{"{SECRET}": 1}}'),
        ("AFTERTURN_USER_TOKEN_SECRET", SECRET[:20]),
        ("AFTERTURN_BATCH", SECRET),
        ("AFTERTURN_LOG_LEVEL", SECRET),
        ("AFTERTURN_PASSWORD", SECRET),
    ],
)
def test_no_value_in_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(WrongSettings) as caught:
        settings(monkeypatch, {name: value})
    monkeypatch.delenv(name)
    with pytest.raises(WrongSettings) as in_file:
        settings(monkeypatch, {}, written(tmp_path, f"{name}='{value}'\n"))
    for error in (caught.value, in_file.value):
        assert name in str(error)
        assert SECRET[:8] not in str(error)
        # nothing hangs on it that a traceback would print
        assert error.__suppress_context__ or error.__context__ is None
    assert SECRET[:8] not in caplog.text


def test_a_key_file_given_by_mistake_is_not_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = written(tmp_path, "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQE=\nMIIEvQ\n")
    with pytest.raises(WrongSettings) as caught:
        settings(monkeypatch, {}, file)
    assert len(caught.value.problems) == 3
    assert "MIIE" not in str(caught.value)


def test_the_models_own_error_hides_values_too() -> None:
    with pytest.raises(ValidationError) as caught:
        Settings(redis=f"redis://u:{SECRET}/x@h")
    assert SECRET not in str(caught.value)


def test_variables_are_those_that_are_read() -> None:
    assert variables()["AFTERTURN_KAFKA"] == "kafka"
    assert variables()["OPENAI_API_KEY"] == "openai_api_key"
    assert len(variables()) == len(Settings.model_fields)
    assert known("AFTERTURN_TEST_BROKER")
    assert not known("AFTERTURN_OPENAI_BASE_URL")
