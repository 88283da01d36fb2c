"""Fills a model's statistics as Triton does, and keeps what its metrics tell beyond them.

Triton's Python backend counts a request whose response is an error as a success; here it is a failure.
Nothing is pushed: whoever exports metrics reads these counts when it is asked (``telemetry.inference``).
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from time import perf_counter_ns, time_ns

from tribar.modelserver.backends.base import Execution
from tribar.modelserver.statistics import BatchStatistics, ModelStatistics, ResponseStatistics

Clock = Callable[[], int]
"""Nanoseconds that never step back."""

BUCKETS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_BUCKETS_NS = tuple(round(bound * 1e9) for bound in BUCKETS_S)


class DurationHistogram:
    """How many durations fell into which bucket: ``counts`` has one more than ``BUCKETS_S``."""

    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS_NS) + 1)
        self.sum_ns = 0

    def add(self, ns: int) -> None:
        """One more."""
        self.counts[bisect_left(_BUCKETS_NS, ns)] += 1
        self.sum_ns += ns


class Recorder:
    """The counts of one loaded model version.

    ``failures`` has Triton's reasons: REJECTED (queue full, timeout), CANCELED, BACKEND, OTHER. The histograms are of
    the time in the queue (a request each) and of the computation (an execution each).
    """

    def __init__(self, name: str, version: str, clock: Clock = perf_counter_ns) -> None:
        self.statistics = ModelStatistics(name, version)
        self.failures = dict.fromkeys(("REJECTED", "CANCELED", "BACKEND", "OTHER"), 0)
        self.queue_histogram = DurationHistogram()
        self.compute_histogram = DurationHistogram()
        self.read_pending: Callable[[], int] = int
        self.clock = clock

    def failed(self, reason: str, enqueued_ns: int) -> None:
        """A request that got an error as its answer."""
        self.failures[reason] += 1
        self.statistics.fail.add(self.clock() - enqueued_ns)

    def overflowed(self) -> None:
        """A request that found the queue full: refused, but no failure among the statistics."""
        self.failures["REJECTED"] += 1

    def succeeded(self, execution: Execution, size: int, enqueued_ns: Sequence[int], end_ns: int) -> None:
        """Requests of an execution that is over: their ``size`` together, and when each of them came."""
        statistics, count = self.statistics, len(enqueued_ns)
        start_ns, add_to_queue = execution.start_ns, self.queue_histogram.add
        all_queue_ns = 0
        for one_ns in enqueued_ns:
            queue_ns = start_ns - one_ns if one_ns < start_ns else 0
            all_queue_ns += queue_ns
            add_to_queue(queue_ns)
        statistics.inference_count += size
        statistics.success.add(count * end_ns - sum(enqueued_ns), count)
        statistics.queue.add(all_queue_ns, count)
        statistics.compute_input.add(count * (execution.input_end_ns - start_ns), count)
        statistics.compute_infer.add(count * (execution.output_start_ns - execution.input_end_ns), count)
        statistics.compute_output.add(count * (execution.end_ns - execution.output_start_ns), count)

    def executed(self, execution: Execution) -> None:
        """A batch that ran to its end, also where all of it failed."""
        statistics = self.statistics
        statistics.execution_count += 1
        statistics.last_inference_ms = time_ns() // 1_000_000
        batch = statistics.batches.get(execution.batch_size)
        if batch is None:
            batch = statistics.batches[execution.batch_size] = BatchStatistics()
        batch.compute_input.add(execution.input_end_ns - execution.start_ns)
        batch.compute_infer.add(execution.output_start_ns - execution.input_end_ns)
        batch.compute_output.add(execution.end_ns - execution.output_start_ns)
        self.compute_histogram.add(max(0, execution.end_ns - execution.start_ns))

    def cache_hit(self, lookup_ns: int, enqueued_ns: int) -> None:
        """A request that the response cache answered: a success that ran nothing."""
        self.statistics.cache_hit.add(lookup_ns)
        self.statistics.queue.add(0)
        self.statistics.success.add(self.clock() - enqueued_ns)

    def cache_miss(self, ns: int) -> None:
        """Look-up and insertion of a request that had to run."""
        self.statistics.cache_miss.add(ns)
        self.statistics.success.ns += ns

    def response(self, index: int, since_ns: int, *, is_failed: bool, is_empty: bool) -> None:
        """One response of a decoupled request; ``since_ns`` is when the one before it went out."""
        response = self._response(index)
        ns = self.clock() - since_ns
        response.compute_infer.add(ns)
        if is_failed:
            response.fail.add(ns)
        elif is_empty:
            response.empty_response.add(ns)
        else:
            response.compute_output.add(0)
            response.success.add(ns)

    def response_cancelled(self, index: int, since_ns: int) -> None:
        """A decoupled request was given up before this response."""
        self._response(index).cancel.add(self.clock() - since_ns)

    def _response(self, index: int) -> ResponseStatistics:
        return self.statistics.responses.setdefault(str(index), ResponseStatistics())
