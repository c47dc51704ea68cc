"""`afterturn demo`: watch a long conversation flow through the pipeline."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from streams.cli.start import SettingsFile, fail, load_settings, run
from streams.demo.endpoint import ask
from streams.demo.play import Unfinished, as_json, play

OPENAI_MODEL = "gpt-4o-mini"
"""With OPENAI_API_KEY alone: a small model that its endpoint has."""

_COLOURS = {
    "frontend": "white",
    "window": "cyan",
    "summarise": "green",
    "merge": "magenta",
    "credits": "yellow",
    "memories": "blue",
    "stack": "dim",
}


def command(
    settings_file: SettingsFile = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    broker: Annotated[
        str, typer.Option(help="embedded, apache, or HOST:PORT of one that runs.")
    ] = "embedded",
    model: Annotated[
        str | None, typer.Option(help="Model of the OPENAI_BASE_URL endpoint that summarises.")
    ] = None,
    base_url: Annotated[str | None, typer.Option(help="OpenAI-compatible endpoint.")] = None,
) -> None:
    """Play a conversation of more than 250 turns, show what each agent does, and the context of the next reply."""
    settings = load_settings(settings_file, summary_model=model, OPENAI_BASE_URL=base_url, log_level="ERROR")
    if settings.summary_model == "extractive" and (settings.openai_base_url or settings.openai_api_key):
        if settings.openai_base_url:
            # which models an endpoint of somebody's own has, only they know
            fail("OPENAI_BASE_URL is set; name the model with --model or AFTERTURN_SUMMARY_MODEL", 2)
        settings = settings.model_copy(update={"summary_model": OPENAI_MODEL})
    console = Console(stderr=json, highlight=False)
    started = time.monotonic()

    def say(agent: str, line: str) -> None:
        if not json:
            colour = _COLOURS.get(agent, "white")
            console.print(
                f"[dim]{time.monotonic() - started:6.2f}[/dim]  [{colour}]{agent:9}[/{colour}]  {escape(line)}"
            )

    if settings.summary_model != "extractive":
        say("stack", f"asks {settings.summary_model} whether it answers")
        run(ask(settings))
    try:
        result = run(play(settings, broker, lambda line: say("stack", line), say))
    except Unfinished as error:
        fail(str(error))
    if json:
        typer.echo(as_json(result))
    else:
        _show(console, result)


def _show(console: Console, result: dict[str, Any]) -> None:
    parts = {part["part"]: part for part in result["context"]["parts"]}
    for tier, title in (
        ("long_term", "Long-term memory"),
        ("merged", "Merged summaries"),
        ("recent", "Recent summaries"),
    ):
        console.rule(f"[bold]{title}")
        console.print(escape(parts[tier]["text"]) or "[dim]none[/dim]")
    console.rule("[bold]Saved memories")
    for memory in result["memories"]:
        console.print(("[bold]pinned[/bold] " if memory["pinned"] else "") + escape(memory["text"]))
    console.rule("[bold]Context of the next reply")
    table = Table("part", "items", "tokens", box=None, pad_edge=False)
    for part in result["context"]["parts"]:
        table.add_row(part["part"], str(len(part["ids"])), f"{part['tokens']:,}")
    console.print(table)
    console.print(
        f"read in {result['context_milliseconds']} ms; left out: {len(result['context']['left_out'])}"
    )
    console.rule("[bold]Credits by stage, from ClickHouse")
    spend = Table("stage", "uses", "tokens in", "tokens out", "credits", box=None, pad_edge=False)
    for stage, s in result["spend"].items():
        spend.add_row(stage, f"{s['uses']:,}", f"{s['tokens_in']:,}", f"{s['tokens_out']:,}", s["credits"])
    console.print(spend)
    credits = result["credits"]
    console.print(f"sent {credits['sent']}, in ClickHouse {credits['clickhouse']}")
    turns = result["turns"]
    console.rule()
    console.print(
        f"{turns['applied']} of {turns['sent']} turns applied in {result['seconds']} s; "
        f"{result['live']['messages']} messages live ({result['live']['tokens']:,} tokens), "
        f"{result['pending']['messages']} pending, {result['summarised_share']:.0%} of the history summarised, "
        f"{len(result['rules_kept'])} rules kept word for word"
    )
