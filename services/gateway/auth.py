"""Who is asking. Bearer tokens of two kinds: service tokens act for any user, user tokens for one.

A user token is a JWT (HS256) with `sub`, the user's id, and `exp`. Tokens are never logged.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated

import jwt
from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import TypeAdapter, ValidationError

from schemas.base import Id
from services.gateway.problems import Problem
from services.settings import SECRET_BYTES, Settings

_ID: TypeAdapter[str] = TypeAdapter(Id)


@dataclass(frozen=True, slots=True)
class Principal:
    """Who a request comes from. `user` None: a service. `expires` is in seconds since 1970; None: never."""

    name: str
    user: str | None = None
    expires: float | None = None

    def may_access(self, owner: str | None) -> bool:
        """A service everything; a user what is theirs."""
        return self.user is None or self.user == owner


class Authenticator:
    """Checks tokens. Raises ValueError where nothing could ever pass, or the secret is too short."""

    def __init__(self, service_tokens: Iterable[str], user_secret: str | None) -> None:
        # digests are compared: the time tells neither content nor length
        self._services = [hashlib.sha256(token.encode()).digest() for token in service_tokens if token]
        self._secret = user_secret
        if user_secret is not None and len(user_secret.encode()) < SECRET_BYTES:
            raise ValueError(f"user_token_secret: has less than {SECRET_BYTES} bytes")
        if not self._services and user_secret is None:
            raise ValueError(
                "service_tokens or user_token_secret: neither is set, nobody could use the gateway"
            )

    def principal(self, token: str) -> Principal:
        """Who this token stands for. Raises Problem 401."""
        digest = hashlib.sha256(token.encode()).digest()
        # no early end: all are compared
        if sum(hmac.compare_digest(digest, known) for known in self._services):
            return Principal(f"service:{digest.hex()[:12]}")
        if self._secret is None:
            raise unauthorised("The token is not known.")
        try:
            claims = jwt.decode(
                token, self._secret, algorithms=["HS256"], options={"require": ["sub", "exp"]}
            )
            user = _ID.validate_python(claims["sub"], strict=True)
            expires = float(claims["exp"])
        except jwt.ExpiredSignatureError:
            raise unauthorised("The token has expired.") from None
        except (jwt.InvalidTokenError, ValidationError, OverflowError):
            # JSON knows numbers that are no time
            raise unauthorised("The token is not valid.") from None
        return Principal(f"user:{user}", user, expires)


def from_settings(
    settings: Settings, generate: Callable[[], str] = lambda: secrets.token_urlsafe(32)
) -> tuple[Authenticator, str | None]:
    """The authenticator, and the token that was made up because none is configured (on loopback only).

    Raises ValueError where that would leave a gateway open to the network without a token anybody chose.
    """
    tokens = [token.get_secret_value() for token in settings.service_tokens]
    secret = settings.user_token_secret.get_secret_value() if settings.user_token_secret else None
    if any(tokens) or secret is not None:
        return Authenticator(tokens, secret), None
    if not _is_loopback(settings.host):
        raise ValueError(
            f"host: {settings.host} is not loopback; set service_tokens or user_token_secret to listen there"
        )
    generated = generate()
    return Authenticator([generated], None), generated


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def unauthorised(detail: str) -> Problem:
    """401, with the scheme that is asked for."""
    return Problem(401, "unauthorised", detail, headers={"WWW-Authenticate": "Bearer"})


SECURITY: list[dict[str, list[str]]] = [{"bearer": []}]
"""How a route that authenticates says so in OpenAPI."""

_SCHEME = HTTPBearer(
    scheme_name="bearer", auto_error=False, description="A service token, or a user token (JWT, HS256)."
)


def authenticate(request: Request) -> Principal:
    """Who a request comes from. Raises Problem 401."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise unauthorised("The header `Authorization: Bearer TOKEN` is missing.")
    authenticator: Authenticator = request.app.state.deps.authenticator
    return authenticator.principal(token.strip())


async def _authenticated(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Depends(_SCHEME)]
) -> Principal:
    # the scheme is a dependency for the sake of OpenAPI
    return authenticate(request)


Authenticated = Annotated[Principal, Depends(_authenticated)]
