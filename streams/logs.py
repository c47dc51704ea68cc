"""Structured logs: one JSON object a line on standard error. No text of a chat is ever logged."""

from __future__ import annotations

import logging
import sys

from pythonjsonlogger.json import JsonFormatter

# Faust gives our subclasses of its app and its consumer loggers of our names
_FOREIGN = (
    "faust",
    "mode",
    "aiokafka",
    "asyncio",
    "httpx",
    "openai",
    "uvicorn",
    "streams.runtime.app",
    "streams.runtime.consumer",
)


def configure(level: str) -> None:
    """Replace all handlers. Libraries speak from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter(
            "{levelname}{name}{message}",
            style="{",
            rename_fields={"levelname": "level", "name": "logger", "message": "event"},
            timestamp="at",
        )
    )
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _FOREIGN:
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level)))
