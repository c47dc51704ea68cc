"""Metrics of the gateway, declared in one typed list with unit and meaning."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from services.metrics import Kind, Metric

METRICS: tuple[Metric, ...] = (
    Metric(
        "gateway_requests_total",
        Kind.counter,
        "requests",
        "Requests answered.",
        ("route", "method", "status"),
    ),
    Metric(
        "gateway_request_seconds",
        Kind.histogram,
        "seconds",
        "Time up to the last byte of an answer; streams of events are not in it.",
        ("route",),
    ),
    Metric("gateway_events_total", Kind.counter, "events", "Events by what became of them.", ("outcome",)),
    Metric("gateway_streams", Kind.gauge, "streams", "Streams of server-sent events that are open."),
)
_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class GatewayMetrics:
    """One gateway's metrics in one registry."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._metrics: dict[str, Counter | Gauge | Histogram] = {}
        for metric in METRICS:
            name, text = f"afterturn_{metric.name}", f"{metric.meaning} Unit: {metric.unit}."
            if metric.kind is Kind.counter:
                self._metrics[metric.name] = Counter(name, text, metric.labels, registry=self.registry)
            elif metric.kind is Kind.gauge:
                self._metrics[metric.name] = Gauge(name, text, metric.labels, registry=self.registry)
            else:
                self._metrics[metric.name] = Histogram(
                    name, text, metric.labels, registry=self.registry, buckets=_BUCKETS
                )

    def add(self, name: str, amount: float = 1, **labels: str) -> None:
        """Count up; a gauge also down, with a negative amount."""
        metric = self._metrics[name]
        assert not isinstance(metric, Histogram)
        (metric.labels(**labels) if labels else metric).inc(amount)

    def observe(self, name: str, value: float, **labels: str) -> None:
        """Add an observation to a histogram."""
        metric = self._metrics[name]
        assert isinstance(metric, Histogram)
        metric.labels(**labels).observe(value)

    def exposition(self) -> bytes:
        """All values in the text format of Prometheus."""
        return generate_latest(self.registry)
