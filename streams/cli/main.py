"""The commands, each in a module of its own."""

from __future__ import annotations

import typer

from streams.cli import demo, dlq, gateway, migrate, reference, topics, up, worker

app = typer.Typer(
    name="afterturn",
    help="The memory behind a chat with a character: a streaming pipeline on Apache Kafka.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("demo")(demo.command)
app.command("up")(up.command)
app.command("worker")(worker.command)
app.command("gateway")(gateway.command)
app.command("migrate")(migrate.command)
app.command("settings")(reference.command)
app.add_typer(topics.app, name="topics")
app.add_typer(dlq.app, name="dlq")


def main() -> None:
    """Entry point."""
    app()
