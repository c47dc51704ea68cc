"""One call of the script that carries out Changes; alone, or in one transaction with a turn that is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.asyncio import Redis
from redis.exceptions import NoScriptError

from schemas.delivery import Position
from schemas.live import WindowChanged
from services.state import keys
from services.state.scripts import Script
from services.state.transaction import at_once
from services.takeback.changes import BRING, Changes, Value
from services.window.store import AGENT, SCRIPT, Reply

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
    status, *rest = await REWRITE.run(redis, *rewrite)
    return Answer(status.decode(), rest)


async def run_with_turn(
    redis: Redis,
    rewrite: Call,
    turn: tuple[Sequence[str], Sequence[Any]],
) -> Answer:
    """Carry out a plan and record a turn, both or neither in the eyes of a reader. Raises redis.RedisError."""
    calls = [
        ("EVALSHA", script.sha, len(names), *names, *arguments)
        for script, (names, arguments) in ((REWRITE, rewrite), (SCRIPT, turn))
    ]
    try:
        (status, *rest), recorded = await at_once(redis, calls)
    except NoScriptError:
        await redis.script_load(REWRITE.text)
        await redis.script_load(SCRIPT.text)
        (status, *rest), recorded = await at_once(redis, calls)
    return Answer(status.decode(), rest, Reply.of(recorded))
