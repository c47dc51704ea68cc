"""Changes of saved memories: published as commands, whose results are waited for.

The gateway writes no memories itself; the agent `memories` is the only one that does.

| the process dies | what follows |
|---|---|
| before the broker confirmed | the command may be in the log all the same; with an Idempotency-Key a repeat has its id |
| after it | the command takes effect; a repeat with the same Idempotency-Key gets its result |

Shown by tests/integration/test_gateway_memories.py.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Request, Response
from pydantic_core import to_json
from redis.exceptions import RedisError

from schemas.base import Id
from schemas.delivery import Outgoing, Topics
from schemas.memories import MemoryChanged, MemoryCommand, OpResult, Status
from schemas.saved_memories import CommandPending, CommandResult
from services.gateway import users
from services.gateway.auth import Authenticated, Principal
from services.gateway.hub import Hub, Signal, Subscription
from services.gateway.idempotency import Idempotency
from services.gateway.ports import Deps, deps_of
from services.gateway.problems import Problem, documented
from services.gateway.publishing import publish
from services.gateway.users import UserId
from services.memories import policy, store
from services.state import ids
from services.state.keys import UserKeys

_LIMIT = re.compile(r"the limit is (\d+)")
_LOG = logging.getLogger(__name__)
router = APIRouter()

IdempotencyKey = Annotated[
    str | None,
    Header(description="1 to 200 printable ASCII characters: a repeat with it changes nothing."),
]
PENDING: dict[int | str, dict[str, Any]] = {
    202: {"model": CommandPending, "description": "In the log, but not done in time; see `result`."}
}
"""The answer of a route that waits for a command in vain, for OpenAPI."""


class Asked(NamedTuple):
    """A request to change the memories of `user`. `body` is what a repeat has to have as well."""

    request: Request
    principal: Principal
    user: str
    key: str | None
    body: bytes = b""

    @property
    def deps(self) -> Deps:
        """What the app was made with."""
        return deps_of(self.request)


class Envelope(NamedTuple):
    """What all commands have."""

    id: str
    at: datetime
    user_id: str


async def carry_out(
    asked: Asked,
    make: Callable[[dict[str, Any]], MemoryCommand],
    check: Callable[[], Awaitable[None]] | None = None,
) -> MemoryChanged | Response:
    """What became of the command that `make` makes of an envelope; where that is not known in time, the answer 202.

    `check` is asked before a command goes out, not for one that was carried out before; it raises what stands against it.
    Raises Problem 422 for an Idempotency-Key that came with another request, 503 where the broker does not confirm.
    """
    deps, user = asked.deps, asked.user
    command_id = await _id(asked)
    command = make(Envelope(command_id, deps.clock(), user)._asdict())
    hub: Hub = asked.request.app.state.hub
    async with hub.listen(UserKeys.of(user).channel, deps.redis_timeout) as results:
        found = await _result(deps, user, command_id) if asked.key is not None else None
        if found is None:
            if check is not None:
                await check()
            value = command.model_dump_json(exclude_none=True).encode()
            try:
                await publish(deps, [Outgoing(Topics.MEMORY_COMMANDS, user.encode(), value)])
            except Problem as problem:
                raise _perhaps(problem, user, command_id) from problem
            try:
                found = await _awaited(deps, results, command)
            except (RedisError, TimeoutError) as error:
                # it is in the log: what becomes of it can be asked later
                _LOG.warning("result of a command not read", extra={"error": type(error).__name__})
    if found is not None:
        return found
    place = _place(user, command_id)
    pending = CommandPending(command_id=command_id, result=place)
    return Response(to_json(pending), 202, {"Location": place}, "application/json")


def _place(user: str, command_id: str) -> str:
    """Where what became of a command is told."""
    return f"/v1/users/{quote(user, safe='')}/memory-commands/{quote(command_id, safe='')}"


def _perhaps(problem: Problem, user: str, command_id: str) -> Problem:
    """Of a command that the broker did not confirm: it may be carried out all the same."""
    place = _place(user, command_id)
    return Problem(
        problem.status,
        problem.name,
        "Kafka does not confirm the change; it may be carried out all the same: `result` will tell. "
        "With an Idempotency-Key it can be repeated, without one a repeat may be another change.",
        headers=problem.headers,
        result=place,
    )


async def _id(asked: Asked) -> str:
    """With an Idempotency-Key the same for a repeat of the same request by the same client."""
    if asked.key is None:
        return asked.deps.new_id()
    request = asked.request
    # the path names the memory: the key of another one is another request
    whole = f"{request.method} {request.url.path} ".encode() + asked.body
    once = Idempotency(asked.deps.redis, f"memories {asked.principal.name}", asked.key, whole)
    async with asked.deps.store():
        await once.same_body()
    # results are kept for longer than keys: a key that is used again later for something else is another command
    return ids.derive("command", asked.principal.name, asked.user, asked.key, once.digest)


async def _awaited(deps: Deps, results: Subscription, command: MemoryCommand) -> MemoryChanged | None:
    loop = asyncio.get_running_loop()
    until = loop.time() + deps.memory_timeout
    while (left := until - loop.time()) > 0:
        item = await results.next(left)
        if item is None or item is Signal.closed:
            break
        if item is Signal.missed:
            found = await _result(deps, command.user_id, command.id)
        else:
            found = _read(item, command.id)
        if found is not None:
            return found
    return await _result(deps, command.user_id, command.id)


def _read(item: bytes | Signal, command_id: str) -> MemoryChanged | None:
    assert isinstance(item, bytes)
    if command_id.encode() not in item:
        return None
    result = MemoryChanged.model_validate_json(item)
    return result if result.command_id == command_id else None


async def _result(deps: Deps, user: str, command_id: str) -> MemoryChanged | None:
    async with deps.store() as redis:
        return await store.read_result(redis, user, command_id)


def applied(result: MemoryChanged, fields: tuple[str, ...] = ()) -> tuple[OpResult, ...]:
    """The results of a command of which nothing was refused.

    Raises Problem 404 where what it is about is not there, else 409 with what stands against it. `fields`: where in
    the request each operation is from, as a JSON pointer.
    """
    refused = {
        place: each.reason or "" for place, each in enumerate(result.results) if each.status is Status.refused
    }
    if not refused:
        return result.results
    if not policy.UNKNOWN.isdisjoint(refused.values()):
        raise Problem(404, "unknown-memory", "There is no such memory, or no such change of one.")
    wrong = {place: reason for place, reason in refused.items() if reason != policy.BESIDE}
    errors = [
        refusal(reason, fields[place] if place < len(fields) else "") for place, reason in wrong.items()
    ]
    raise Problem(409, "refused", next(iter(wrong.values())), errors=errors)


def refusal(reason: str, place: str = "") -> dict[str, Any]:
    """A reason of the agent (`field: what is wrong with it`) as an error of a field."""
    field, _, message = reason.partition(": ")
    error: dict[str, Any] = {"field": f"{place}/{field}", "message": message or reason}
    if (limit := _LIMIT.search(reason)) is not None:
        error["limit"] = int(limit[1])
    return error


@router.get(
    "/v1/users/{user:path}/memory-commands/{command}",
    response_class=Response,
    summary="What became of a command on saved memories",
    responses={
        200: {"model": CommandResult, "description": "It has been carried out, or refused."},
        **documented(401, 403, 404, 422, 503),
    },
)
async def get_command(
    request: Request, principal: Authenticated, user: UserId, command: Annotated[Id, Path()]
) -> Response:
    """404: not carried out yet, or too long ago: the last 1,000 commands of a user are remembered."""
    users.check(principal, user)
    result = await _result(deps_of(request), user, command)
    if result is None:
        raise Problem(404, "unknown-command", "The command is not carried out yet, or not known.")
    return Response(to_json(CommandResult(command_id=command, result=result)), media_type="application/json")
