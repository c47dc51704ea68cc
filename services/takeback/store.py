"""One call of the script that carries out Changes; alone, or in one transaction with a turn that is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from schemas.delivery import Position
from schemas.live import WindowChanged
from services.state import keys
from services.state.agents import WINDOW as AGENT
from services.state.scripts import Script
from services.state.transaction import at_once
from services.takeback.changes import BRING, Changes, Value
from services.window.store import SCRIPT, Reply

REWRITE = Script("services.takeback", "rewrite.lua")

WHOLE, PART, LAST = "whole", "part", "last"


Call = tuple[Sequence[str], Sequence[Value]]
"""Keys and arguments of the script."""


class Answer(NamedTuple):
    """What the script answered: its status, the outbox or a detail, and what a recorded turn was answered."""

    status: str
    rest: Sequence[bytes]
    recorded: Reply | None = None


def call(
    chat: str,
    event: str,
    position: Position,
    version: str,
    mode: str,
    changes: Changes,
    hint: WindowChanged | None,
) -> Call:
    """One call; `version` is '' for a chat that is made."""
    k = keys.ChatKeys.of(chat)
    places: dict[str, int] = {}
    arguments: list[Value] = [
        position.epoch,
        position.partition,
        position.offset,
        event,
        version,
        mode,
        keys.channel(chat),
        hint.model_dump_json() if hint is not None else "",
    ]
    for step in changes.steps:
        place = places.setdefault(step.key, len(places) + 1)
        values = step.arguments
        if step.command == BRING:
            values = (places.setdefault(str(values[0]), len(places) + 1), *values[1:])
        arguments += (step.command, place, len(values), *values)
    return [k.window, k.events, keys.outbox(chat, AGENT), *places], arguments


async def run(redis: Redis, rewrite: Call) -> Answer:
    """Carry out a plan. Raises redis.RedisError."""
    ((status, *rest),) = await _run(redis, [(REWRITE, *rewrite)])
    return Answer(status.decode(), rest)


async def run_with_turn(
    redis: Redis,
    rewrite: Call,
    turn: tuple[Sequence[str], Sequence[Any]],
) -> Answer:
    """Carry out a plan and record a turn, both or neither. Raises redis.RedisError."""
    (status, *rest), recorded = await _run(redis, [(REWRITE, *rewrite), (SCRIPT, *turn)])
    return Answer(status.decode(), rest, Reply.of(recorded))


async def _run(redis: Redis, scripts: Sequence[tuple[Script, Sequence[str], Sequence[Any]]]) -> list[Any]:
    """Scripts in one transaction. Where Redis has forgotten them, nothing of it may take effect: EXEC does not undo."""
    calls = [("EVALSHA", script.sha, len(names), *names, *arguments) for script, names, arguments in scripts]
    try:
        return await at_once(redis, calls)
    except NoScriptError:
        # in this order, and by nobody else: where the script of a plan is there, that of the turn behind it is as well
        for script in (SCRIPT, REWRITE):
            await redis.script_load(script.text)
        return await at_once(redis, calls)
