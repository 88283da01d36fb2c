"""Prometheus metrics of pools of connections (Redis, SQL), each with the label ``pool``."""

from prometheus_client import CollectorRegistry, Counter, Histogram

WAIT_BUCKETS_S = (0.00001, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)


class PoolFamilies:
    """The metric families, registered once per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.wait = Histogram(
            "tribar_pool_wait_seconds",
            "Time until a caller had a connection.",
            ("pool",),
            registry=registry,
            buckets=WAIT_BUCKETS_S,
        )
        self.failures = Counter(
            "tribar_pool_failures",
            "Callers turned away: no connection became free in time, or no server answered.",
            ("pool", "reason"),
            registry=registry,
        )


class PoolMetrics:
    """One pool's metrics: an observer of it (``stores.pool_observer`` has the same methods)."""

    def __init__(self, families: PoolFamilies, pool: str) -> None:
        self._wait = families.wait.labels(pool)
        self._failures = families.failures
        self._pool = pool

    def on_wait(self, wait_s: float) -> None:
        """A caller has its connection."""
        self._wait.observe(wait_s)

    def on_failure(self, reason: str) -> None:
        """A caller was turned away."""
        self._failures.labels(self._pool, reason).inc()
