"""Reads a chat for somebody, if it is theirs."""

from __future__ import annotations

from services.context import store
from services.context.snapshot import Snapshot
from services.gateway.auth import Principal
from services.gateway.ports import Deps
from services.gateway.problems import unknown_chat


async def snapshot(deps: Deps, principal: Principal, chat: str, *, bodies: bool = True) -> Snapshot:
    """The chat as it stands, `bodies` as for services.context.store.read.

    Raises Problem 404 where it is unknown or somebody else's.
    """
    async with deps.store() as redis:
        found = await store.read(redis, chat, bodies=bodies)
    if found is None or not principal.may_access(found.user):
        raise unknown_chat()
    return found


async def check(deps: Deps, principal: Principal, chat: str) -> None:
    """The same check, without reading the chat."""
    async with deps.store() as redis:
        (owner,) = await store.owner(redis, [chat])
    if owner is None or not principal.may_access(owner):
        raise unknown_chat()
