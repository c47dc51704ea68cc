"""GET /: where somebody who opens the gateway in a browser finds the rest."""

from __future__ import annotations

from fastapi import APIRouter, Request
from pydantic import BaseModel

router = APIRouter()


class Start(BaseModel):
    """What answers here, and paths to go on from."""

    name: str
    version: str
    openapi: str = "/openapi.json"
    health: str = "/healthz"
    ready: str = "/readyz"
    metrics: str = "/metrics"


@router.get("/", summary="What this is")
async def start(request: Request) -> Start:
    """Needs no token."""
    return Start(name=request.app.title, version=request.app.version)
