"""`afterturn topics apply`: creates the topics of infra/kafka/topics.yaml that are missing."""

from __future__ import annotations

import typer

from infra import topics
from streams.cli.start import SettingsFile, load_settings, run
from streams.runtime.publisher import client_options

app = typer.Typer(help="Topics of the pipeline.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """Topics of the pipeline."""


@app.command("apply")
def apply(settings_file: SettingsFile = None) -> None:
    """Create what is missing; refuse where a topic has another number of partitions."""
    options = client_options(load_settings(settings_file))
    report = run(topics.apply(options.pop("bootstrap_servers"), **options))
    typer.echo(f"created {len(report.created)}, already there {len(report.existing)}")
    for name in report.created:
        typer.echo(f"  {name}")
