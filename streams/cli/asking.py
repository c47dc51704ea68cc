"""Asks a gateway for what only the process of its stack can look at: the engine of a ledger serves one process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aiohttp
from pydantic_core import from_json

from services.settings import Settings
from streams.cli.start import fail

NO_BROKER = "127.0.0.1:0"
"""As the broker's address of a stack: one that runs already is not started, and nobody connects to it here."""


def service_token(settings: Settings) -> str:
    """The first that is configured. Ends the command where there is none."""
    if not settings.service_tokens:
        fail("the gateway needs a service token: --token, or AFTERTURN_SERVICE_TOKENS", 2)
    return settings.service_tokens[0].get_secret_value()


async def ask(
    gateway: str, path: str, token: str, parameters: Mapping[str, str], expected: str
) -> dict[str, Any]:
    """The answer to a POST, which has the field `expected`. Ends the command where it is none."""
    url = f"{gateway.rstrip('/')}{path}"
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)  # as long as there is something to read
    headers = {"Authorization": f"Bearer {token}"}
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as session,
            session.post(url, params=parameters, headers=headers) as response,
        ):
            status, content = response.status, _object(await response.read())
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
        fail(f"{gateway} is not the URL of a gateway, like http://127.0.0.1:8080", 2)
    except aiohttp.ClientError as error:
        fail(f"{url}: {type(error).__name__}: {error}")
    if status != 200:
        fail(f"{url} answers {status}: {content.get('detail', 'without saying why')}")
    if expected not in content:
        fail(f"{url} is not a gateway of Afterturn")
    return content


def _object(body: bytes) -> dict[str, Any]:
    """A JSON object; empty for anything else, as a proxy's page."""
    try:
        content = from_json(body)
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}
