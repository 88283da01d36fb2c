"""Prometheus metrics of the engines: names follow vLLM's with the prefix ``tribar_``, each with the label ``model``.

One process exports; engines push snapshots over the wire. The registry is made by ``app`` and passed in.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from tribar.telemetry.reports import EngineSnapshot, RequestReport

TTFT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80)
TPOT_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5)
REQUEST_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640)

_GAUGES = {
    "num_requests_running": "Sequences that hold a row of the engine.",
    "num_requests_waiting": "Sequences that wait for a row.",
    "num_tokens_waiting": "Prompt tokens of the requests in the queue.",
    "time_to_first_token_estimate_seconds": "What a short request of a new tenant would wait now; 0 while unknown.",
    "prefill_budget_tokens": "Prefill tokens that the latest step could take.",
    "kv_cache_usage_ratio": "Share of the KV blocks that sequences hold, 0 to 1.",
    "kv_cache_reusable_ratio": "Share of the KV blocks that are free, but hold a prefix that can be reused, 0 to 1.",
    "kv_slots_used_ratio": "Share of the allocated KV memory that holds tokens, 0 to 1; 0 when none is allocated.",
}

_COUNTERS = {
    "n_steps": ("engine_steps", "Steps of the engine."),
    "n_prompt_tokens": ("prompt_tokens", "Prompt tokens, cached ones included."),
    "n_output_tokens": ("generation_tokens", "Generated tokens."),
    "n_prefix_queried": ("prefix_cache_queries", "Prompt tokens looked up in the prefix cache."),
    "n_prefix_hit": ("prefix_cache_hits", "Prompt tokens found in the prefix cache."),
    "n_preemptions": ("num_preemptions", "Sequences thrown back to the queue for want of blocks or rows."),
    "step_s": ("engine_step_seconds", "Time spent in steps."),
    "runner_s": ("engine_runner_seconds", "Time of the steps spent in the runner."),
}

_HISTOGRAMS = {
    "time_to_first_token_seconds": ("Submit to first token.", TTFT_BUCKETS_S),
    "time_per_output_token_seconds": ("Mean time between the tokens of a request, after its first.", TPOT_BUCKETS_S),
    "e2e_request_latency_seconds": ("Submit to end, of every request whichever way it ended.", REQUEST_BUCKETS_S),
    "request_queue_time_seconds": ("Time in the queue.", REQUEST_BUCKETS_S),
    "request_prefill_time_seconds": ("Time from the queue to the first token.", REQUEST_BUCKETS_S),
    "request_decode_time_seconds": ("Time from the first token to the last.", REQUEST_BUCKETS_S),
}


class EngineFamilies:
    """The metric families, registered once per registry; every model has its own series in them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("model",)
        self.gauges = {name: Gauge(f"tribar_{name}", text, labels, registry=registry) for name, text in _GAUGES.items()}
        self.counters = {
            field: Counter(f"tribar_{name}", text, labels, registry=registry)
            for field, (name, text) in _COUNTERS.items()
        }
        self.histograms = {
            name: Histogram(f"tribar_{name}", text, labels, registry=registry, buckets=buckets)
            for name, (text, buckets) in _HISTOGRAMS.items()
        }
        self.finished = Counter(
            "tribar_request_finished",
            "Requests that ended, by finish reason, abort reason or error.",
            ("model", "finished_reason"),
            registry=registry,
        )
        self.refused = Counter(
            "tribar_request_refused", "Requests refused on arrival.", ("model", "reason"), registry=registry
        )


class EngineMetrics:
    """One model's metrics: an observer of its engine client (``engine.observer`` has the same four methods).

    Counters only grow, also when the engine restarts and its own counts begin again at 0.
    """

    def __init__(
        self,
        families: EngineFamilies,
        model: str,
        latest: "dict[EngineMetrics, EngineSnapshot] | None" = None,
    ) -> None:
        """Several engines of one model share ``latest``; each has an ``EngineMetrics`` of its own."""
        self._gauges = {name: gauge.labels(model) for name, gauge in families.gauges.items()}
        self._counters = {field: counter.labels(model) for field, counter in families.counters.items()}
        self._histograms = {name: histogram.labels(model) for name, histogram in families.histograms.items()}
        self._finished = families.finished
        self._refused = families.refused
        self._model = model
        self._latest: dict[EngineMetrics, EngineSnapshot] = {} if latest is None else latest
        self._counted = dict.fromkeys(self._counters, 0.0)
        self._counted_refused: dict[str, int] = {}

    def on_stats(self, stats: EngineSnapshot) -> None:
        """Take over an engine's snapshot."""
        self._latest[self] = stats
        self._show()
        counts: dict[str, float] = {field: getattr(stats, field) for field in self._counters}
        is_reset = any(counts[field] < self._counted[field] for field in counts)
        if is_reset or any(stats.refused.get(reason, 0) < n for reason, n in self._counted_refused.items()):
            self._forget_counts()
        for field, counter in self._counters.items():
            counter.inc(counts[field] - self._counted[field])
        self._counted = counts
        for reason, n in stats.refused.items():
            self._refused.labels(self._model, reason).inc(n - self._counted_refused.get(reason, 0))
        self._counted_refused = dict(stats.refused)

    def on_first_token(self, ttft_s: float) -> None:
        """A request's first token came."""
        self._observe("time_to_first_token_seconds", ttft_s)

    def on_finish(self, report: RequestReport) -> None:
        """A request ended, whichever way."""
        self._finished.labels(self._model, report.reason).inc()
        self._observe("e2e_request_latency_seconds", report.e2e_s)
        self._observe("request_queue_time_seconds", report.timing.queue_s)
        self._observe("request_prefill_time_seconds", report.timing.prefill_s)
        self._observe("request_decode_time_seconds", report.timing.decode_s)
        n_tokens = report.usage.completion_tokens
        if report.ttft_s is not None and n_tokens > 1:
            self._observe("time_per_output_token_seconds", (report.e2e_s - report.ttft_s) / (n_tokens - 1))

    def on_disconnect(self) -> None:
        """The engine is gone: nothing runs or waits there, and the next one counts from 0."""
        self._latest.pop(self, None)
        self._show()
        self._forget_counts()

    def _show(self) -> None:
        """The gauges, of all engines of the model together."""
        latest = list(self._latest.values())
        n_blocks, n_slots = sum(s.n_blocks for s in latest), sum(s.kv_slots_allocated for s in latest)
        self._set("num_requests_running", sum(s.n_running for s in latest))
        self._set("num_requests_waiting", sum(s.n_waiting for s in latest))
        self._set("num_tokens_waiting", sum(s.n_waiting_tokens for s in latest))
        self._set("time_to_first_token_estimate_seconds", min((s.ttft_estimate_s for s in latest), default=0))
        self._set("prefill_budget_tokens", sum(s.prefill_budget for s in latest))
        self._set("kv_cache_usage_ratio", _ratio(sum(s.n_blocks_used for s in latest), n_blocks))
        self._set("kv_cache_reusable_ratio", _ratio(sum(s.n_blocks_cached for s in latest), n_blocks))
        self._set("kv_slots_used_ratio", _ratio(sum(s.kv_slots_used for s in latest), n_slots))

    def _set(self, name: str, value: float) -> None:
        self._gauges[name].set(value)

    def _observe(self, name: str, seconds: float) -> None:
        self._histograms[name].observe(seconds)

    def _forget_counts(self) -> None:
        self._counted = dict.fromkeys(self._counters, 0.0)
        self._counted_refused = {}


def metrics_text(registry: CollectorRegistry) -> bytes:
    """The registry in Prometheus' text format (content type ``text/plain; version=0.0.4``)."""
    return generate_latest(registry)


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
