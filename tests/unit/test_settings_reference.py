"""docs/settings.md is what the model says, and what is printed has no secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.settings import Settings
from services.settings_sources import variables
from streams.cli.reference import MASK, in_force, reference
from tests.unit.test_settings import SECRET, WITH_SECRETS

DOCUMENT = Path(__file__).parents[2] / "docs" / "settings.md"


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == reference(), "run `make docs`"


def test_every_setting_has_a_row_with_a_meaning() -> None:
    rows = [line.split(" | ") for line in reference().splitlines() if line.startswith("| `")]
    assert [row[0].strip("|` ") for row in rows] == list(variables())
    assert all(len(row) == 5 and len(row[4]) > 8 for row in rows)


def test_numbers_have_a_range() -> None:
    numbers = [line.split(" | ") for line in reference().splitlines() if " number | " in line]
    assert numbers
    assert all(row[3].strip() for row in numbers)


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WITH_SECRETS.items():
        monkeypatch.setenv(name, value)
    lines = in_force(Settings())
    assert SECRET not in "\n".join(lines)
    assert f"AFTERTURN_REDIS=redis://user:{MASK}@127.0.0.1:6379/0" in lines
    assert f'AFTERTURN_SERVICE_TOKENS=["{MASK}"]' in lines
    assert f"OPENAI_API_KEY={MASK}" in lines
    assert "# AFTERTURN_KAFKA_USERNAME is not set" in lines


def test_a_password_in_the_query_of_an_address_is_masked() -> None:
    settings = Settings(redis=f"rediss://:{SECRET}@h:1/0?db=2&password={SECRET}&ssl_cert_reqs=none")
    (line,) = (line for line in in_force(settings) if line.startswith("AFTERTURN_REDIS"))
    assert line == f"AFTERTURN_REDIS=rediss://:{MASK}@h:1/0?db=2&password={MASK}&ssl_cert_reqs=none"
