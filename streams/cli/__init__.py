"""The command `afterturn`."""

from streams.cli.main import main

__all__ = ["main"]
