"""`afterturn audit`: checks what a stack has stored, while it runs or while it rests."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from services.audit.report import Read
from services.audit.service import audit
from services.settings import Settings
from streams.cli.asking import NO_BROKER, ask
from streams.cli.progress import Meter
from streams.cli.running import DataFolder
from streams.cli.start import SettingsFile, fail, load_settings, run
from streams.cli.stores import AsJson, Content, GatewayUrl, Token, Whose, open_stores, start_stores, tell

_SHOWN = 100


class Only(NamedTuple):
    """What is read: one chat, one user's saved memories, or (both None) everything."""

    chat: str | None = None
    user: str | None = None


def command(
    settings_file: SettingsFile = None,
    data: DataFolder = None,
    chat: Annotated[str | None, typer.Option(help="Only this chat.")] = None,
    user: Annotated[str | None, typer.Option(help="Only this user's saved memories.")] = None,
    gateway: GatewayUrl = None,
    token: Token = None,
    at_rest: Annotated[
        bool, typer.Option("--at-rest", help="Nothing is under way: what is unfinished is an error.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that every message is in exactly one place, and that all that is derived fits together.

    Chunks and merges are contiguous, nothing is derived from what was taken back, saved memories keep to their limits and
    have an unbroken history, and uses are booked once.

    Reads the Redis and ClickHouse of the settings; with --data those of `afterturn up --data DIR`, which are started
    for the audit where that does not run. Ends with 1 where something is wrong.
    """
    settings = load_settings(settings_file)
    whose = Whose(data, gateway, token).checked()
    if at_rest and not whose.settings_alone:
        fail("--at-rest is for the stores of the settings; --data knows whether its stack rests", 2)
    tell(run(work(settings, whose, Only(chat, user), at_rest)), lines, as_json)


async def work(settings: Settings, whose: Whose, only: Only, at_rest: bool) -> Content:
    """The report. Raises what the stores raise, DataInUse and StartFailed."""
    to_ask = whose.to_ask(settings)
    if to_ask is not None:
        asked = {name: value for name, value in only._asdict().items() if value is not None}
        return await ask(to_ask[0], "/v1/audit", to_ask[1], asked, "findings")
    if whose.data is None:
        return await _audit(settings, only, at_rest)
    async with start_stores(settings, whose.data, NO_BROKER) as started:
        return await _audit(started, only, at_rest=True, own=True)


async def _audit(settings: Settings, only: Only, at_rest: bool, own: bool = False) -> Content:
    async with open_stores(settings, own=own) as stores:
        with Meter("auditing", "chats and users") as meter:

            def show(read: Read) -> None:
                meter.show(read.chats + read.users)

            report = await audit(
                stores.redis,
                stores.ledger,
                chat=only.chat,
                user=only.user,
                at_rest=at_rest,
                progress=show,
            )
    return report.as_dict()


def lines(content: Content) -> list[str]:
    """What was read, and what is wrong."""
    read = content["read"]
    state = "at rest" if content["at_rest"] else "running"
    shown = [
        f"read ({state}): " + ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in read.items())
    ]
    if not content["ledger"]:
        shown.append("the ledger was not read")
    for finding in content["findings"][:_SHOWN]:
        place = f"chat {finding['chat']}" if finding["chat"] else "ledger"
        if finding.get("user"):
            place = f"user {finding['user']}"
        shown.append(f"{finding['severity']:7} {finding['check']:10} {place}: {finding['detail']}")
    left = content["errors"] + content["warnings"] - min(_SHOWN, len(content["findings"]))
    if left > 0:
        shown.append(f"and {left} more (--json shows up to 1,000)")
    verdict = "sound" if content["ok"] else "WRONG"
    return [*shown, f"{verdict}: {content['errors']} errors, {content['warnings']} warnings"]
