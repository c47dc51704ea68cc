"""Options of the Faust app that the promises of the runtime rest on."""

from __future__ import annotations

from services.settings import Settings
from streams.runtime import app as faust_app
from streams.runtime.consumer import Consumer


async def test_a_worker_waits_for_an_outage_without_leaving_its_group() -> None:
    """With 3 s here and nothing polled for longer, the worker left the group and never came back."""
    conf = faust_app.create("afterturn-toy", Settings()).conf
    assert conf.broker_max_poll_interval >= 7 * 86_400
    # sent to the client in milliseconds, as a signed 32-bit number
    assert conf.broker_max_poll_interval * 1_000 < 2**31


async def test_nothing_is_done_by_side_effect() -> None:
    app = faust_app.create("afterturn-toy", Settings())
    assert isinstance(app.consumer, Consumer)
    assert not app.conf.topic_allow_declare
    assert app.conf.topic_disable_leader
    assert not app.conf.web_enabled


async def test_a_rebalance_waits_for_what_is_in_flight() -> None:
    settings = Settings(shutdown_deadline=20)
    conf = faust_app.create("afterturn-toy", settings).conf
    assert conf.stream_wait_empty
    # the group waits longer for this worker than this worker for its work
    assert conf.broker_rebalance_timeout > settings.shutdown_deadline
    assert conf.broker_heartbeat_interval < conf.broker_session_timeout
