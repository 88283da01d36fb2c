"""Prometheus metrics of the semantic cache."""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LOOKUP_BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1)


class CacheFamilies:
    """The metric families, registered once per registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.lookups = Histogram(
            "tribar_semantic_cache_lookup_seconds",
            "Time of a lookup, by model and result: exact, semantic or miss.",
            ("model", "result"),
            registry=registry,
            buckets=LOOKUP_BUCKETS_S,
        )
        self.bypasses = Counter(
            "tribar_semantic_cache_bypasses",
            "Requests that went past the cache, by reason.",
            ("model", "reason"),
            registry=registry,
        )
        self.checks = Counter(
            "tribar_semantic_cache_checks",
            "Hits that turned out right or wrong, as a shadow check or a client found.",
            ("model", "source", "outcome"),
            registry=registry,
        )
        self.entries = Gauge("tribar_semantic_cache_entries", "Stored answers and marks.", registry=registry)
        self.bytes = Gauge(
            "tribar_semantic_cache_bytes",
            "Memory of what is stored here.",
            registry=registry,
        )
        self.vectors = Gauge("tribar_semantic_cache_vectors", "Questions that can be found.", registry=registry)

    def watch(self, n_entries: Callable[[], int], n_bytes: Callable[[], int]) -> None:
        """Read the sizes at every scrape."""
        self.entries.set_function(n_entries)
        self.bytes.set_function(n_bytes)

    def watch_vectors(self, n_vectors: Callable[[], int]) -> None:
        """Read their number at every scrape."""
        self.vectors.set_function(n_vectors)


class CacheMetrics:
    """One model's metrics: the observer of its cache (``gateway.semantic_cache.observer`` has the same methods)."""

    def __init__(self, families: CacheFamilies, model: str) -> None:
        self._families = families
        self._model = model
        self._lookups = {result: families.lookups.labels(model, result) for result in ("exact", "semantic", "miss")}

    def on_hit(self, tier: str, seconds: float) -> None:
        """``tier`` is "exact" or "semantic"."""
        self._lookups[tier].observe(seconds)

    def on_miss(self, seconds: float) -> None:
        """Nothing that was stored answers the question."""
        self._lookups["miss"].observe(seconds)

    def on_bypass(self, reason: str) -> None:
        """A request went past the cache."""
        self._families.bypasses.labels(self._model, reason).inc()

    def on_check(self, source: str, *, is_right: bool) -> None:
        """``source`` is "shadow" or "client"."""
        self._families.checks.labels(self._model, source, "right" if is_right else "wrong").inc()
