"""All metrics, declared in one typed list with unit and meaning."""

from __future__ import annotations

from copy import copy
from enum import StrEnum
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Kind(StrEnum):
    """How values of a metric combine."""

    counter = "counter"
    gauge = "gauge"
    histogram = "histogram"


class Metric(NamedTuple):
    """Name without prefix; unit as in the name's last word; labels beside `agent`."""

    name: str
    kind: Kind
    unit: str
    meaning: str
    labels: tuple[str, ...] = ()


METRICS: tuple[Metric, ...] = (
    Metric(
        "lag_records",
        Kind.gauge,
        "records",
        "Records of the topic that this worker's partitions have not acknowledged.",
        ("topic",),
    ),
    Metric(
        "lag_age_seconds",
        Kind.gauge,
        "seconds",
        "Age of the oldest record in this worker that is not acknowledged.",
    ),
    Metric("in_flight_records", Kind.gauge, "records", "Records that are being handled now."),
    Metric("done_total", Kind.counter, "records", "Records handled, repeats included."),
    Metric(
        "repeated_total", Kind.counter, "records", "Records that had taken effect before and changed nothing."
    ),
    Metric("retried_total", Kind.counter, "attempts", "Attempts after a transient failure."),
    Metric("dead_total", Kind.counter, "records", "Records sent to the dead letters.", ("kind",)),
    Metric("published_total", Kind.counter, "records", "Records published and confirmed by the broker."),
    Metric(
        "handle_seconds",
        Kind.histogram,
        "seconds",
        "Time from taking a record (or batch) up to its acknowledgement.",
    ),
    Metric("model_calls_total", Kind.counter, "calls", "Calls of a summariser.", ("stage", "outcome")),
    Metric("model_seconds", Kind.histogram, "seconds", "Time of one call of a summariser.", ("stage",)),
    Metric(
        "model_tokens_total",
        Kind.counter,
        "tokens",
        "Tokens that summarisers read and wrote.",
        ("stage", "direction"),
    ),
)


class Metrics:
    """The metrics of one agent. Unknown names and labels raise KeyError or ValueError at once."""

    def __init__(self, agent: str, registry: CollectorRegistry | None = None) -> None:
        self.agent = agent
        self.registry = registry or CollectorRegistry()
        kinds = {Kind.counter: Counter, Kind.gauge: Gauge, Kind.histogram: Histogram}
        self._metrics = {
            metric.name: kinds[metric.kind](
                f"afterturn_{metric.name}",
                f"{metric.meaning} Unit: {metric.unit}.",
                ("agent", *metric.labels),
                registry=self.registry,
            )
            for metric in METRICS
        }

    def beside(self, agent: str) -> Metrics:
        """Those of another agent in the same registry: one page has each family once."""
        other = copy(self)
        other.agent = agent
        return other

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count up."""
        self._metrics[name].labels(agent=self.agent, **labels).inc(amount)

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        self._metrics[name].labels(agent=self.agent, **labels).set(value)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add an observation to a histogram."""
        self._metrics[name].labels(agent=self.agent, **labels).observe(value)
