"""Prometheus metrics of the model server, by Triton's names, each with the labels ``model`` and ``version``.

Nothing is counted twice: a model version keeps its statistics anyway, and a scrape reads them. Counts begin again at 0
with every load, as Triton's do. They have no type: a counter's name would end in ``_total``, Triton's do not.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily, Metric, UnknownMetricFamily
from prometheus_client.registry import Collector

_LABELS = ("model", "version")


class DurationCount(Protocol):
    """How often, and how long in all."""

    count: int
    ns: int


class InferenceCounts(Protocol):
    """A model version's statistics (``modelserver.statistics.ModelStatistics`` has this shape)."""

    inference_count: int
    execution_count: int

    @property
    def success(self) -> DurationCount:
        """Answered, from arrival to answer."""
        ...

    @property
    def queue(self) -> DurationCount:
        """From arrival to the start of the execution."""
        ...

    @property
    def compute_input(self) -> DurationCount:
        """Preparing inputs."""
        ...

    @property
    def compute_infer(self) -> DurationCount:
        """Computing."""
        ...

    @property
    def compute_output(self) -> DurationCount:
        """Handing out outputs."""
        ...

    @property
    def cache_hit(self) -> DurationCount:
        """Look-ups in the response cache that hit."""
        ...

    @property
    def cache_miss(self) -> DurationCount:
        """Look-up and insertion of those that missed."""
        ...


class DurationBuckets(Protocol):
    """Durations by bucket; ``counts`` ends with those over the last bound."""

    counts: list[int]
    sum_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InferenceSource:
    """What a scrape reads of one model version. ``failures``: count by Triton's reason."""

    model: str
    version: str
    counts: InferenceCounts
    failures: Mapping[str, int]
    read_pending: Callable[[], int]
    bounds_s: Sequence[float]
    queue: DurationBuckets
    compute: DurationBuckets


_COUNTERS: Mapping[str, tuple[str, Callable[[InferenceCounts], float]]] = {
    "nv_inference_request_success": ("Requests answered.", lambda counts: counts.success.count),
    "nv_inference_count": ("Inferences; a batch of n counts n.", lambda counts: counts.inference_count),
    "nv_inference_exec_count": ("Executions; a batch counts 1.", lambda counts: counts.execution_count),
    "nv_inference_request_duration_us": ("Arrival to answer.", lambda counts: counts.success.ns // 1000),
    "nv_inference_queue_duration_us": ("Time in the queue.", lambda counts: counts.queue.ns // 1000),
    "nv_inference_compute_input_duration_us": ("Preparing inputs.", lambda counts: counts.compute_input.ns // 1000),
    "nv_inference_compute_infer_duration_us": ("Computing.", lambda counts: counts.compute_infer.ns // 1000),
    "nv_inference_compute_output_duration_us": (
        "Handing out outputs.",
        lambda counts: counts.compute_output.ns // 1000,
    ),
    "nv_cache_num_hits_per_model": ("Requests the response cache answered.", lambda counts: counts.cache_hit.count),
    "nv_cache_num_misses_per_model": ("Requests it could not answer.", lambda counts: counts.cache_miss.count),
    "nv_cache_hit_duration_per_model": ("Look-ups that hit, us.", lambda counts: counts.cache_hit.ns // 1000),
    "nv_cache_miss_duration_per_model": ("Look-up and insertion, us.", lambda counts: counts.cache_miss.ns // 1000),
}


class InferenceMetrics(Collector):
    """The families of all model versions; made once per registry."""

    def __init__(self, registry: CollectorRegistry, read_sources: Callable[[], Sequence[InferenceSource]]) -> None:
        """``read_sources`` tells what is loaded now."""
        self._read_sources = read_sources
        registry.register(self)

    def describe(self) -> Iterable[Metric]:
        """The families, without series: their names are taken whatever is loaded."""
        return self._families(())

    def collect(self) -> Iterable[Metric]:
        """Everything, as it is now."""
        return self._families(self._read_sources())

    def _families(self, sources: Sequence[InferenceSource]) -> Iterable[Metric]:
        for name, (text, read) in _COUNTERS.items():
            counter = UnknownMetricFamily(name, text, labels=_LABELS)
            for source in sources:
                counter.add_metric((source.model, source.version), read(source.counts))
            yield counter
        failures = UnknownMetricFamily(
            "nv_inference_request_failure", "Requests that failed, by reason.", labels=(*_LABELS, "reason")
        )
        pending = GaugeMetricFamily("nv_inference_pending_request_count", "Requests in the queue.", labels=_LABELS)
        queue = HistogramMetricFamily(
            "tribar_inference_queue_seconds", "A request's time in the queue.", labels=_LABELS
        )
        compute = HistogramMetricFamily("tribar_inference_compute_seconds", "An execution's time.", labels=_LABELS)
        for source in sources:
            labels = (source.model, source.version)
            for reason, count in source.failures.items():
                failures.add_metric((*labels, reason), count)
            pending.add_metric(labels, source.read_pending())
            queue.add_metric(labels, _buckets(source.bounds_s, source.queue), source.queue.sum_ns / 1e9)
            compute.add_metric(labels, _buckets(source.bounds_s, source.compute), source.compute.sum_ns / 1e9)
        yield from (failures, pending, queue, compute)


def _buckets(bounds_s: Sequence[float], durations: DurationBuckets) -> list[tuple[str, float]]:
    names = [*map(str, map(float, bounds_s)), "+Inf"]
    return list(zip(names, accumulate(map(float, durations.counts)), strict=True))
