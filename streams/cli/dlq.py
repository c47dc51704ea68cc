"""`afterturn dlq`: lists, shows, replays and drops dead letters. A list never shows the text of a chat."""

from __future__ import annotations

import heapq
import json
import sys
from contextlib import aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from services.deadletters import policy
from services.deadletters.policy import DeadLetter, Kind, Place, ReplayPolicy, Selection, WrongId
from services.settings import Settings
from streams.cli.progress import Meter
from streams.cli.running import DataFolder, on_running
from streams.cli.start import SettingsFile, fail, load_settings, run
from streams.deadletters import DeadLetters, Done, Listed, open_dead_letters

app = typer.Typer(help="Dead letters: records that an agent could not handle.", no_args_is_help=True)

TopicName = Annotated[str | None, typer.Option("--topic", help="Only of this topic.")]
AgentName = Annotated[str | None, typer.Option("--agent", help="Only of this agent.")]
OfKind = Annotated[Kind | None, typer.Option("--kind", help="Only of this kind.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, help="At most so many.")]
Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Ids, as `list` shows them.")]
All = Annotated[bool, typer.Option("--all", help="All that are not handled yet and match the options.")]


@app.command("list")
def list_command(
    settings_file: SettingsFile = None,
    data: DataFolder = None,
    topic: TopicName = None,
    agent: AgentName = None,
    kind: OfKind = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="The newest so many.")] = 100,
    handled: Annotated[bool, typer.Option("--handled", help="Those replayed or dropped, instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List dead letters, oldest first: id, kind, when, key, reason."""
    settings = on_running(load_settings(settings_file), data)
    run(_list(settings, Selection(topic, agent, kind, handled), limit, as_json))


@app.command("show")
def show_command(
    id: Annotated[str, typer.Argument(help="Id, as `list` shows it.")],
    settings_file: SettingsFile = None,
    data: DataFolder = None,
    raw: Annotated[
        bool, typer.Option("--raw", help="The bytes of the value alone, for a file or another program.")
    ] = False,
) -> None:
    """Print a dead letter: its headers, an empty line, and the value's bytes as they are. May show text of a chat."""
    run(_show(on_running(load_settings(settings_file), data), id, raw))


@app.command("replay")
def replay_command(
    ids: Ids = None,
    settings_file: SettingsFile = None,
    data: DataFolder = None,
    everything: All = False,
    topic: TopicName = None,
    agent: AgentName = None,
    kind: OfKind = None,
    limit: Limit = None,
    force: Annotated[bool, typer.Option("--force", help="Also what was replayed 3 times already.")] = False,
) -> None:
    """Publish the original key and bytes to the original topic again, and take the dead letter off the list."""
    settings = on_running(_loaded(settings_file, ids, everything), data)
    run(_deal(settings, ids or [], Selection(topic, agent, kind), limit, ReplayPolicy(force=force)))


@app.command("drop")
def drop_command(
    ids: Ids = None,
    settings_file: SettingsFile = None,
    data: DataFolder = None,
    everything: All = False,
    topic: TopicName = None,
    agent: AgentName = None,
    kind: OfKind = None,
    limit: Limit = None,
) -> None:
    """Take dead letters off the list without replaying them. They stay in Kafka for as long as it keeps them."""
    settings = on_running(_loaded(settings_file, ids, everything), data)
    run(_deal(settings, ids or [], Selection(topic, agent, kind), limit, None))


def _loaded(file: Path | None, ids: list[str] | None, everything: bool) -> Settings:
    if bool(ids) == everything:
        fail("give ids, or --all for every dead letter that matches the options", 2)
    return load_settings(file)


async def _list(settings: Settings, selection: Selection, limit: int, as_json: bool) -> None:
    async with open_dead_letters(settings) as letters:
        _check(letters, selection)
        total = 0
        newest: list[tuple[tuple[int, Place], dict[str, str]]] = []
        with Meter("reading dead letters", "records") as meter:
            async with aclosing(letters.find(selection, None, meter.show)) as found:
                async for listed in found:
                    total += 1
                    # only what is shown is kept, not the record; places differ, so that dicts are never compared
                    heapq.heappush(newest, (policy.oldest_first(listed.letter), _row(listed)))
                    if len(newest) > limit:
                        heapq.heappop(newest)
    rows = [row for _, row in sorted(newest, key=lambda each: each[0])]
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row, ensure_ascii=False))
        return
    if rows:
        _print_table(rows, selection.handled)
    older = f", the {len(rows)} newest are shown (--limit)" if total > len(rows) else ""
    typer.echo(f"{total} {'handled ' if selection.handled else ''}dead letters{older}")


def _check(letters: DeadLetters, selection: Selection) -> None:
    if not selection.routes(letters.routes):
        pairs = ", ".join(f"{route.topic} ({route.agent})" for route in letters.routes)
        fail(f"no dead letters are kept for that topic and agent; there are: {pairs}", 2)


def _row(listed: Listed) -> dict[str, str]:
    letter = listed.letter
    row = {
        "id": letter.id,
        "kind": letter.kind,
        "at": letter.at,
        "key": _decoded(letter.record.key or b""),
        "reason": letter.reason,
        "topic": letter.route.topic,
        "replayed": str(letter.replayed),
    }
    return {**row, "handled": listed.handled} if listed.handled else row


def _print_table(rows: list[dict[str, str]], handled: bool) -> None:
    columns = ["id", "kind", "at", "key", "replayed", "reason", *(["handled"] if handled else [])]
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, no_wrap=column == "id", overflow="fold")
    for row in rows:
        # Text: what a header says is never taken for markup
        table.add_row(*(Text(_printable(row[column])) for column in columns))
    # a pipe has no width: one line for each then
    Console(width=None if sys.stdout.isatty() else 1_000).print(table)


async def _show(settings: Settings, id: str, raw: bool) -> None:
    async with open_dead_letters(settings) as letters:
        selection = Selection(places=frozenset([_place(id, letters)]))
        async with aclosing(letters.find(selection, 1)) as found:
            listed = await anext(found, None)
    if listed is None:
        fail(f"{id}: there is no such dead letter (any more)")
    out = sys.stdout.buffer
    if not raw:
        for line in _about(listed.letter, listed.handled):
            out.write(f"{line}\n".encode())
        out.write(b"\n")
    out.write(listed.letter.record.value or b"")
    if not raw:
        out.write(b"\n")
    out.flush()


def _about(letter: DeadLetter, handled: str) -> list[str]:
    record = letter.record
    facts: dict[str, Any] = {
        "id": letter.id,
        "place": f"{record.topic}, partition {record.partition}, offset {record.offset}",
        "timestamp": datetime.fromtimestamp(record.timestamp / 1000, UTC).isoformat(timespec="milliseconds"),
        "key": _decoded(record.key) if record.key is not None else "(none)",
        "value": f"{len(record.value)} bytes" if record.value is not None else "(none)",
        "handled": handled or "no",
    }
    lines = [f"{name}: {_printable(str(value))}" for name, value in facts.items()]
    return lines + [
        f"{_printable(name)}: {_printable(_decoded(value or b''))}" for name, value in record.headers
    ]


async def _deal(
    settings: Settings, ids: list[str], selection: Selection, limit: int | None, rules: ReplayPolicy | None
) -> None:
    """Replays by `rules`, or drops where there are none."""
    async with open_dead_letters(settings) as letters:
        if ids:
            places = frozenset(_place(id, letters) for id in ids)
            selection = Selection(selection.topic, selection.agent, selection.kind, places=places)
        _check(letters, selection)
        word = "dropped" if rules is None else "replayed"
        with Meter("dropping" if rules is None else "replaying", "records looked at") as meter:
            if rules is None:
                done = await letters.drop(selection, limit, meter.show)
            else:
                done = await letters.replay(selection, limit, rules, meter.show)
    _report(done, word)


def _report(done: Done, word: str) -> None:
    for id in done.ids:
        typer.echo(f"{word} {id}")
    for id, reason in done.refused:
        typer.echo(f"refused {id}: {reason}", err=True)
    for id in done.missing:
        typer.echo(f"not found {id}, or not of that kind", err=True)
    typer.echo(f"{len(done.ids)} {word}, {len(done.refused)} refused")
    if done.refused or done.missing:
        raise typer.Exit(1)


def _place(id: str, letters: DeadLetters) -> Place:
    try:
        return policy.place(id, letters.routes)
    except WrongId as error:
        fail(str(error), 2)


def _decoded(value: bytes) -> str:
    return value.decode("utf-8", "backslashreplace")


def _printable(text: str) -> str:
    """Without control characters, which could steer a terminal."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)
