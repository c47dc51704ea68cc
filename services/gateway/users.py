"""Whose memories a request is about, and who may ask."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from schemas.base import Id
from services.gateway.auth import Principal
from services.gateway.problems import Problem

UserId = Annotated[Id, Path(description="The user's id; `/` in it as %2F or as it is.")]
CharacterId = Annotated[Id, Path(description="The character's id; `/` in it as %2F or as it is.")]


def check(principal: Principal, user: str) -> None:
    """Raises Problem 403 where a user token is not this user's. The same for every other user, known or not."""
    if not principal.may_access(user):
        raise Problem(403, "forbidden", "The token is not this user's.")
