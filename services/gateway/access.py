"""Reads a chat for somebody, if it is theirs."""

from __future__ import annotations

from services.context import saved, store
from services.context.memories import Memories, Status
from services.context.snapshot import Snapshot
from services.failures import Transient
from services.gateway.auth import Principal
from services.gateway.ports import Deps
from services.gateway.problems import Problem, moving, unknown_chat

READS = 5
"""Times that a chat and its user's memories are read, where something is taken back in between."""


async def snapshot(deps: Deps, principal: Principal, chat: str, *, bodies: bool = True) -> Snapshot:
    """The chat as it stands, `bodies` as for services.context.store.read.

    Raises Problem 404 where it is unknown or somebody else's.
    """
    async with deps.store() as redis:
        found = await store.read(redis, chat, bodies=bodies)
    if found is None or not principal.may_access(found.user):
        raise unknown_chat()
    return found


async def with_status(deps: Deps, principal: Principal, chat: str) -> tuple[Snapshot, Status]:
    """The same, and what it reads of its owner's saved memories."""
    found = await snapshot(deps, principal, chat)
    async with deps.store() as redis:
        return found, await saved.status(redis, found)


async def with_memories(
    deps: Deps, principal: Principal, chat: str, user: str | None
) -> tuple[Snapshot, Memories]:
    """The chat as for a context, and the saved memories of `user` (None: of the chat's owner), of one moment.

    Raises Problem 404 as `snapshot` does, 403 for the memories of somebody else, 503 where neither stands still.
    """
    if user is not None and not principal.may_access(user):
        raise Problem(403, "forbidden", "user: a user token reads nobody else's memories.")
    now = int(deps.clock().timestamp() * 1000)
    async with deps.store() as redis:
        for _ in range(READS):
            found = await store.read(redis, chat, bodies=False)
            if found is None or not principal.may_access(found.user):
                raise unknown_chat()
            try:
                memories = await saved.read(redis, found, user or found.user, now, deps.choices)
            except Transient:
                break
            if memories is not None:
                return found, memories
    raise moving("The chat and the memories change")


async def check(deps: Deps, principal: Principal, chat: str) -> None:
    """The same check, without reading the chat."""
    async with deps.store() as redis:
        (owner,) = await store.owner(redis, [chat])
    if owner is None or not principal.may_access(owner):
        raise unknown_chat()
