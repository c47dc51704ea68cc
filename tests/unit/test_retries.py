"""Trying again: when, how long, and what is never tried again. Time is the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis.exceptions import (
    BusyLoadingError,
    ConnectionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

from services.failures import Fatal, Poison, Transient
from streams.runtime.retries import LONGEST_PAUSE, Retries, pause, redis_failure


class Time:
    """A clock that sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


class Failing:
    """Raises what it is given, one at a time, then returns 'done'."""

    def __init__(self, *errors: BaseException) -> None:
        self.errors = list(errors)
        self.calls = 0

    async def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def _retries(time: Time, budget: float = 10.0, on_retry: Callable[[], None] = lambda: None) -> Retries:
    return Retries(budget, on_retry, now=lambda: time.now, sleep=time.sleep, chance=lambda: 1.0)


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_pauses_grow_up_to_a_limit_and_keep_half(attempt: int, chance: float) -> None:
    assert 0 < pause(attempt, chance) <= LONGEST_PAUSE
    assert pause(attempt, 0.0) == pause(attempt, 1.0) / 2
    assert pause(attempt, chance) <= pause(attempt + 1, chance)


async def test_until_it_works() -> None:
    time, retried = Time(), []
    operation = Failing(Transient("busy"), Transient("busy"))
    assert await _retries(time, on_retry=lambda: retried.append(1)).run(operation) == "done"
    assert (operation.calls, len(retried)) == (3, 2)
    assert time.pauses == [0.2, 0.4]


async def test_over_the_budget_the_last_failure_is_raised() -> None:
    time = Time()
    operation = Failing(*(Transient(f"busy {n}") for n in range(1, 100)))
    with pytest.raises(Transient) as raised:
        await _retries(time, budget=5.0).run(operation)
    assert str(raised.value) == f"busy {operation.calls}"
    assert 5.0 <= time.now <= 5.0 + LONGEST_PAUSE
    assert operation.calls == len(time.pauses) + 1


async def test_a_budget_of_nothing_is_one_attempt() -> None:
    operation = Failing(Transient("busy"))
    with pytest.raises(Transient):
        await _retries(Time(), budget=0.0).run(operation)
    assert operation.calls == 1


async def test_an_outage_is_waited_for_however_long_it_takes() -> None:
    time = Time()
    operation = Failing(*(Transient("away", outage=True) for _ in range(500)))
    assert await _retries(time, budget=1.0).run(operation) == "done"
    assert time.now > 4_000


@pytest.mark.parametrize("error", [Poison("wrong"), Fatal("stop"), KeyError("bug"), asyncio.CancelledError()])
async def test_what_is_not_transient_is_raised_at_once(error: BaseException) -> None:
    time, operation = Time(), Failing(error)
    with pytest.raises(type(error)):
        await _retries(time).run(operation)
    assert (operation.calls, time.pauses) == (1, [])


async def test_redis_away_is_an_outage() -> None:
    time = Time()
    operation = Failing(*(ConnectionError("refused") for _ in range(50)))
    assert await _retries(time, budget=0.0).run(operation) == "done"


async def test_a_wrong_command_is_not() -> None:
    operation = Failing(ResponseError("WRONGTYPE Operation against a key"))
    with pytest.raises(ResponseError):
        await _retries(Time()).run(operation)
    assert operation.calls == 1


@pytest.mark.parametrize(
    ("error", "outage"),
    [
        (ConnectionError("x"), True),
        (TimeoutError("x"), True),
        (BusyLoadingError("x"), True),
        (ReadOnlyError("x"), True),
        (OutOfMemoryError("command not allowed when used memory", status_code="OOM"), True),
        (NoScriptError("No matching script.", status_code="NOSCRIPT"), True),
        (ResponseError("MASTERDOWN Link with MASTER is down"), True),
        (ResponseError("CLUSTERDOWN the cluster is down"), True),
        (ResponseError("ERR unknown command"), False),
        (ResponseError("user_script:12: attempt to index a nil value", status_code="ERR"), False),
        (ResponseError("WRONGTYPE Operation against a key"), False),
        (ResponseError("CROSSSLOT Keys in request"), False),
        (RedisError("x"), False),
    ],
)
def test_which_answers_of_redis_are_an_outage(error: RedisError, outage: bool) -> None:
    failure = redis_failure(error)
    assert (failure is not None and failure.outage) is outage


def test_the_reason_quotes_nothing_but_the_error_code() -> None:
    failure = redis_failure(ResponseError("MISCONF secret text"))
    assert failure is not None
    assert "secret" not in str(failure)
