"""The commands, each in a module of its own that is imported when it is asked for: a worker starts without a gateway."""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import version
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

COMMANDS = (
    "demo",
    "up",
    "worker",
    "gateway",
    "topics",
    "migrate",
    "import",
    "audit",
    "verify-deleted",
    "dlq",
    "settings",
)
_MODULES = {"import": "imports", "settings": "reference", "verify-deleted": "verify_deleted"}
"""Modules that are not named like their command."""


class Commands(TyperGroup):
    """Finds a command's module by its name."""

    def list_commands(self, ctx: Any) -> list[str]:
        """In the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or None where there is no such one."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"streams.cli.{_MODULES.get(cmd_name, cmd_name)}")
        if hasattr(module, "app"):
            command = typer.main.get_command(module.app)
        else:
            alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
            alone.command(cmd_name)(module.command)
            command = typer.main.get_command(alone)
        command.name = cmd_name
        return command


app = typer.Typer(
    name="afterturn",
    cls=Commands,
    help="The memory behind a chat with a character: a streaming pipeline on Apache Kafka.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"afterturn {version('afterturn')}")
        raise typer.Exit


@app.callback()
def afterturn(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """The memory behind a chat with a character: a streaming pipeline on Apache Kafka."""


def main() -> None:
    """Entry point."""
    app()
