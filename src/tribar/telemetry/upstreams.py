"""Prometheus metrics of a pool of engines, each with the label ``upstream``.

What happens is counted as it happens; how upstreams stand is read with each scrape.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tribar.telemetry.metrics import TTFT_BUCKETS_S

WAIT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
BREAKER_STATES = ("closed", "half_open", "open")


class UpstreamSnapshot(Protocol):
    """How an upstream stands (``gateway.pool.observer.UpstreamState`` has this shape)."""

    @property
    def name(self) -> str:
        """Its name in the pool."""
        ...

    @property
    def is_up(self) -> bool:
        """What active checks say."""
        ...

    @property
    def breaker(self) -> str:
        """One of ``BREAKER_STATES``."""
        ...

    @property
    def n_requests(self) -> int:
        """Requests that are open there."""
        ...

    @property
    def n_tokens(self) -> int:
        """Tokens of these, as far as they were known when they were sent."""
        ...


class UpstreamMetrics:
    """An observer of a pool (``gateway.pool.observer`` has the same four methods)."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "tribar_upstream_requests",
            "Attempts at an upstream that ended: ok, client_gone, or by the kind of error.",
            ("upstream", "outcome"),
            registry=registry,
        )
        self._retries = Counter(
            "tribar_upstream_retries",
            "Requests that an upstream failed and that were tried again.",
            ("upstream",),
            registry=registry,
        )
        self._ttft = Histogram(
            "tribar_upstream_time_to_first_token_seconds",
            "From sending a request to an upstream to its first token.",
            ("upstream",),
            registry=registry,
            buckets=TTFT_BUCKETS_S,
        )
        self._waits = Histogram(
            "tribar_upstream_wait_seconds",
            "Waits for a free place where every upstream of the model was full.",
            registry=registry,
            buckets=WAIT_BUCKETS_S,
        )

    def on_wait(self, waited_s: float) -> None:
        """A request waited for a place."""
        self._waits.observe(waited_s)

    def on_first_token(self, upstream: str, ttft_s: float) -> None:
        """The first token of an attempt came."""
        self._ttft.labels(upstream).observe(ttft_s)

    def on_end(self, upstream: str, outcome: str) -> None:
        """An attempt ended."""
        self._requests.labels(upstream, outcome).inc()

    def on_retry(self, upstream: str) -> None:
        """A request that ``upstream`` has failed is tried again."""
        self._retries.labels(upstream).inc()


class UpstreamStates(Collector):
    """Reads how the upstreams stand, and how many requests wait for one of them."""

    def __init__(
        self,
        registry: CollectorRegistry,
        read: Callable[[], Sequence[UpstreamSnapshot]],
        read_waiting: Callable[[], int],
    ) -> None:
        self._read = read
        self._read_waiting = read_waiting
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """See ``Collector``."""
        up = GaugeMetricFamily("tribar_upstream_up", "Whether the active checks succeed.", labels=["upstream"])
        breaker = GaugeMetricFamily(
            "tribar_upstream_breaker", "1 for the state of the circuit breaker.", labels=["upstream", "state"]
        )
        requests = GaugeMetricFamily("tribar_upstream_open_requests", "Requests at an upstream.", labels=["upstream"])
        tokens = GaugeMetricFamily("tribar_upstream_open_tokens", "Tokens of these requests.", labels=["upstream"])
        for state in self._read():
            up.add_metric([state.name], state.is_up)
            requests.add_metric([state.name], state.n_requests)
            tokens.add_metric([state.name], state.n_tokens)
            for name in BREAKER_STATES:
                breaker.add_metric([state.name, name], name == state.breaker)
        waiting = GaugeMetricFamily("tribar_upstream_requests_waiting", "Requests that wait for a free place.")
        waiting.add_metric([], self._read_waiting())
        return [up, breaker, requests, tokens, waiting]
