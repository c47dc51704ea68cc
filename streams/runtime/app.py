"""The Faust app of one agent, set up the way that loses nothing (see docs/decisions)."""

from __future__ import annotations

from typing import Any

import faust
from mode.supervisors import CrashingSupervisor

from services.settings import Settings
from streams.runtime.consumer import Transport
from streams.runtime.publisher import tls

FLUSH_TIMEOUT = 30.0
"""Seconds for one produce request; Faust's default is 20 minutes."""

COMMIT_INTERVAL = 1.0
"""Seconds between commits: how much is delivered again after a kill, and no more than that."""

LONGEST_OUTAGE = 20 * 86_400.0
"""Seconds that a worker may wait for a store without leaving its group. Once aiokafka has left a group for want of
polls it does not join again before the next poll, and Faust does not poll before it has joined."""


class App(faust.App):
    """Faust's app, without the folders for tables that it would make where it is started."""

    def _create_directories(self) -> None:
        pass


def create(group: str, settings: Settings, *, buffer: int | None = None) -> faust.App:
    """An app that consumes as `group`. No tables, no web server, no leader topic, no topics declared by side effect."""
    app = App(
        group,
        broker=[f"kafka://{server}" for server in settings.kafka.split(",")],
        broker_credentials=_credentials(settings),
        store="memory://",
        autodiscover=False,
        set_as_current=False,
        web_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=settings.session_timeout,
        broker_heartbeat_interval=settings.session_timeout / 3,
        broker_rebalance_timeout=settings.shutdown_deadline + 40,
        broker_max_poll_interval=LONGEST_OUTAGE,
        broker_commit_interval=COMMIT_INTERVAL,
        broker_commit_livelock_soft_timeout=10**9,  # waits for an outage are ours to judge and to show
        stream_processing_timeout=10**9,
        stream_wait_empty=True,
        stream_buffer_maxsize=buffer or settings.buffer,
        # so that a partition never has more than two buffers waiting
        broker_max_poll_records=buffer or settings.buffer,
        producer_request_timeout=FLUSH_TIMEOUT,
        logging_config={"version": 1, "disable_existing_loggers": False},
        agent_supervisor=CrashingSupervisor,
    )
    app.transport = Transport(app.conf.broker_consumer, app, loop=app.loop)
    return app


def _credentials(settings: Settings) -> Any:
    if settings.kafka_security == "PLAINTEXT":
        return None
    context = None
    if settings.kafka_security.endswith("SSL"):
        context = tls(settings)
    if settings.kafka_security == "SSL":
        return faust.SSLCredentials(context)
    return faust.SASLCredentials(
        username=settings.kafka_username,
        password=settings.kafka_password.get_secret_value() if settings.kafka_password else None,
        ssl_context=context,
        mechanism=settings.kafka_sasl_mechanism,
    )
