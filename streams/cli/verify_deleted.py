"""`afterturn verify-deleted CHAT`: searches every store for a deleted chat, and proves that it is gone."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from infra.stack import APACHE
from schemas.base import Id
from services.audit.deleted import verify
from services.settings import Settings
from streams.chat_search import ChatSearch
from streams.cli.asking import NO_BROKER, ask
from streams.cli.progress import Meter
from streams.cli.running import DataFolder
from streams.cli.start import SettingsFile, fail, load_settings, run
from streams.cli.stores import AsJson, Content, GatewayUrl, Token, Whose, open_stores, start_stores, tell

UNKNOWN = 3
"""Exit code where no store has a trace of the chat, not even of its deletion: no proof, perhaps a mistyped id."""


def command(
    chat: Annotated[str, typer.Argument(help="Id of the deleted chat.")],
    settings_file: SettingsFile = None,
    data: DataFolder = None,
    gateway: GatewayUrl = None,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Search Redis, ClickHouse and the log for a deleted chat, and prove that it is gone.

    Tells what was searched, what is kept by rule, and what is left. Reads the stores of the settings; with --data those of
    `afterturn up --data DIR`, which are started where that does not run. Ends with 1 where something is left, and with 3 where
    nothing tells that there ever was such a chat: its id may be another one.
    """
    settings = load_settings(settings_file)
    whose = Whose(data, gateway, token).checked()
    try:
        TypeAdapter(Id).validate_python(chat)
    except ValidationError:
        # what no chat can be called is nowhere, which would prove nothing
        fail(f"{chat!r} is no id of a chat: it has 1 to 200 characters, no white space and no braces", 2)
    content = run(work(settings, whose, chat))
    tell(content, lines, as_json)
    if not content["known"]:
        raise typer.Exit(UNKNOWN)


async def work(settings: Settings, whose: Whose, chat: str) -> Content:
    """What was found. Raises what the stores raise, DataInUse and StartFailed."""
    to_ask = whose.to_ask(settings)
    if to_ask is not None:
        return await ask(to_ask[0], "/v1/audit/deleted", to_ask[1], {"chat": chat}, "searched")
    if whose.data is None:
        return await _verify(settings, chat, log=True)
    kept = (whose.data / "kafka").is_dir()
    async with start_stores(settings, whose.data, APACHE if kept else NO_BROKER) as started:
        return await _verify(started, chat, log=kept, own=True)


async def _verify(settings: Settings, chat: str, *, log: bool, own: bool = False) -> Content:
    async with open_stores(settings, own=own) as stores:
        with Meter("searching", "keys and records") as meter:
            search = ChatSearch(settings) if log else None
            verdict = await verify(stores.redis, stores.ledger, search, chat, meter.show)
    return verdict.as_dict()


def lines(content: Content) -> list[str]:
    """What was searched, kept and found."""
    shown = [f"searched {each['store']}: {each['number']:,} {each['what']}" for each in content["searched"]]
    shown += [f"kept     {each['store']}: {each['detail']}" for each in content["kept"]]
    shown += [f"LEFT     {each['store']}: {each['detail']}" for each in content["left"]]
    left = len(content["left"])
    said = "gone" if content["known"] else "UNKNOWN: nothing tells that there ever was such a chat"
    return [*shown, f"chat {content['chat']}: {said if content['ok'] else f'NOT GONE, {left} places'}"]
