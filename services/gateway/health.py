"""GET /healthz, /readyz and /metrics: without a token, and without anything about a chat or a user."""

from __future__ import annotations

import asyncio
import logging

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from redis.exceptions import RedisError

from services.gateway.ports import Deps, deps_of
from services.gateway.problems import Problem, documented

CHECK_SECONDS = 2.0

_LOG = logging.getLogger(__name__)
router = APIRouter()


class Health(BaseModel):
    """Of the process, or of what it needs."""

    status: str


@router.get("/healthz", summary="The process answers")
async def healthz() -> Health:
    """Says nothing about Redis or Kafka: a restart would not bring them back."""
    return Health(status="ok")


@router.get("/readyz", summary="Requests can be served", responses=documented(503))
async def readyz(request: Request) -> Health:
    """Redis answers, and so does the broker where the gateway can ask."""
    deps = deps_of(request)
    missing = [
        name for name, ready in (("Redis", await _redis(deps)), ("Kafka", await _broker(deps))) if not ready
    ]
    if missing:
        raise Problem(503, "not-ready", f"{' and '.join(missing)}: no answer.", headers={"Retry-After": "2"})
    return Health(status="ready")


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {"description": "Text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    },
)
async def metrics(request: Request) -> Response:
    """Names and meanings: services/gateway/metrics.py."""
    return Response(
        deps_of(request).metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8"
    )


async def _redis(deps: Deps) -> bool:
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return bool(await deps.redis.ping())
    except (RedisError, OSError, TimeoutError):
        return False


async def _broker(deps: Deps) -> bool:
    if deps.broker_ready is None:
        return True
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await deps.broker_ready()
    except Exception as error:
        # any failure of the check means the same
        _LOG.info("broker not ready", extra={"error": type(error).__name__})
        return False
