"""What wraps every request."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from fastapi import Request
from starlette.types import Message, Receive, Scope, Send

from services.gateway import bodies
from services.gateway.edge import Edge
from services.gateway.metrics import GatewayMetrics


async def test_a_client_that_goes_away_is_no_fault_of_ours(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    metrics = GatewayMetrics()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await bodies.read(Request(scope, receive), 1_000)

    async def receive() -> Message:
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        raise AssertionError("nobody is there to answer")

    scope: dict[str, Any] = {"type": "http", "method": "POST", "path": "/v1/turns", "headers": []}
    await Edge(app, metrics)(scope, receive, send)
    assert not caplog.records
    assert 'status="499"' in metrics.exposition().decode()
