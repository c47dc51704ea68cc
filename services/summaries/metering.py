"""Calls of a summariser as metrics."""

from __future__ import annotations

from collections.abc import Callable

from services.metrics import Metrics
from services.summaries.service import Call


def metered(metrics: Metrics) -> Callable[[Call], None]:
    """An observer that counts calls, seconds and tokens by stage."""

    def observe(call: Call) -> None:
        metrics.add("model_calls_total", stage=call.stage, outcome=call.outcome)
        metrics.observe("model_seconds", call.seconds, stage=call.stage)
        metrics.add("model_tokens_total", call.tokens_in, stage=call.stage, direction="in")
        metrics.add("model_tokens_total", call.tokens_out, stage=call.stage, direction="out")

    return observe
