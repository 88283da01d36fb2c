"""Prometheus metrics of the limits. None has a key, a tenant or a model in its labels: there may be any number."""

from prometheus_client import CollectorRegistry, Counter


class LimitMetrics:
    """Counts what the limits did; made once per registry. ``gateway.limits.observer`` has methods of these names."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._refused = Counter(
            "tribar_limit_refused",
            "Requests refused by a limit, by what was used up, or because the limits' store was away.",
            ("reason",),
            registry=registry,
        )
        self._unmetered = Counter(
            "tribar_limit_unmetered",
            "Requests that passed without limits while their store was away.",
            registry=registry,
        )

    def on_refusal(self, reason: str) -> None:
        """A request was refused."""
        self._refused.labels(reason.replace(" ", "_")).inc()

    def on_unmetered(self) -> None:
        """A request passed without limits."""
        self._unmetered.inc()
