"""Which gateway may start, and with which tokens."""

from __future__ import annotations

import jwt
import pytest

from services.gateway.auth import Authenticator, from_settings
from services.gateway.problems import Problem
from services.settings import Settings
from tests.gateway import SECRET, SERVICE, user_token


def test_a_token_stands_for_a_service_or_a_user() -> None:
    authenticator = Authenticator([SERVICE], SECRET)
    service = authenticator.principal(SERVICE)
    assert service.user is None
    assert SERVICE not in service.name
    assert service.may_access("anybody")
    user = authenticator.principal(user_token("u1"))
    assert (user.user, user.name) == ("u1", "user:u1")
    assert user.may_access("u1")
    assert not user.may_access("u2")
    assert not user.may_access("")
    assert not user.may_access(None)


@pytest.mark.parametrize("claim", ["exp", "nbf", "iat"])
@pytest.mark.parametrize(
    "value",
    [10**400, float("inf"), float("-inf"), float("nan"), "inf", "soon", None, [], {}, [10**400]],
    ids=lambda value: str(value)[:12],
)
def test_a_time_that_is_none_makes_a_token_invalid(claim: str, value: object) -> None:
    claims = {"sub": "u1", "exp": 4_000_000_000} | {claim: value}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    with pytest.raises(Problem) as caught:
        Authenticator([SERVICE], SECRET).principal(token)
    assert caught.value.status == 401


def test_user_tokens_need_a_secret() -> None:
    with pytest.raises(Problem, match="not known"):
        Authenticator([SERVICE], None).principal(user_token("u1"))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_on_loopback_a_token_is_made_up_where_none_is_configured(host: str) -> None:
    authenticator, token = from_settings(Settings(host=host), lambda: "made-up")
    assert token == "made-up"
    assert authenticator.principal(token).user is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "gateway.internal"])
def test_elsewhere_a_gateway_without_tokens_does_not_start(host: str) -> None:
    with pytest.raises(ValueError, match="service_tokens or user_token_secret"):
        from_settings(Settings(host=host))
    _, token = from_settings(Settings(host=host, service_tokens=(SERVICE,)))  # type: ignore[arg-type]
    assert token is None


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="less than 32 bytes"):
        from_settings(Settings(user_token_secret="short"))  # type: ignore[arg-type]


@pytest.mark.parametrize("tokens", [(), ("",)])
def test_no_token_at_all_is_an_error(tokens: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="neither is set"):
        Authenticator(tokens, None)
