"""The model server's dynamic batcher: what waiting for more requests costs and gains.

The queue delay is swept at low and high load, Poisson arrivals, on the real scheduler over an instance that sleeps as
long as its batch would compute; beside it the same policy in a discrete-event simulation of the same arrivals. Then
the CPU time that a request costs the scheduler.

    python -m benchmarks dynamic_batching [--seconds 4] [--delays 0 5 100]
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import uvloop

from tribar.core.errors import TribarError
from tribar.core.inference import InferRequest, InferResponse
from tribar.modelserver.backends.base import Execution, Instance
from tribar.modelserver.batcher import Batcher, BatchingPolicy
from tribar.modelserver.scheduling.instance_scheduler import InstanceScheduler
from tribar.modelserver.scheduling.recorder import Recorder
from tribar.modelserver.signature import Signature

MAX_BATCH = 32
FIRST_S, EACH_S = 0.008, 0.0005
"""An execution takes the first for itself and the second for each request: at most 1,333 requests a second."""
LOADS_PER_S = {"low": 20, "high": 800}
N_CPU_REQUESTS = 20_000


def duration_s(size: int) -> float:
    """Of an execution."""
    return FIRST_S + EACH_S * size


@dataclass
class Result:
    """Sizes of the batches, and seconds from arrival to answer."""

    sizes: list[int] = field(default_factory=list)
    latencies_s: list[float] = field(default_factory=list)
    end_s: float = 0.0

    def line(self, name: str) -> str:
        """The figures as text."""
        ordered = sorted(self.latencies_s)
        p50, p99 = (1000 * ordered[int(len(ordered) * share)] for share in (0.5, 0.99))
        return (
            f"    {name:10} latency p50 {p50:6.1f} ms  p99 {p99:6.1f} ms   "
            f"mean batch {statistics.mean(self.sizes):5.2f}   {len(ordered) / self.end_s:6.1f} requests/s"
        )


def poisson(per_s: float, seconds: float) -> list[float]:
    """Times of arrival."""
    rng = random.Random(0)
    times_s = [0.0]
    while times_s[-1] < seconds:
        times_s.append(times_s[-1] + rng.expovariate(per_s))
    return times_s[1:]


def simulated(policy: BatchingPolicy, arrivals_s: Sequence[float]) -> Result:
    """One instance, from event to event."""
    result, batcher = Result(), Batcher[int](policy)
    times_ns = [round(at_s * 1e9) for at_s in arrivals_s]
    now_ns = free_ns = n_arrived = 0
    while n_arrived < len(times_ns) or len(batcher):
        while n_arrived < len(times_ns) and times_ns[n_arrived] <= now_ns:
            batcher.enqueue(n_arrived, now_ns=times_ns[n_arrived])
            n_arrived += 1
        batch = batcher.take(now_ns) if free_ns <= now_ns else []
        if batch:
            free_ns = now_ns + round(duration_s(len(batch)) * 1e9)
            result.sizes.append(len(batch))
            result.latencies_s += [(free_ns - queued.enqueued_ns) / 1e9 for queued in batch]
            continue
        events_ns = times_ns[n_arrived : n_arrived + 1]
        due_ns = batcher.next_ns(can_run=free_ns <= now_ns)
        events_ns += [at_ns for at_ns in (due_ns, free_ns) if at_ns is not None and at_ns > now_ns]
        now_ns = min(events_ns)
    result.end_s = free_ns / 1e9
    return result


class SleepInstance:
    """Takes its time and answers nothing."""

    def __init__(self, result: Result, first_s: float = FIRST_S, each_s: float = EACH_S) -> None:
        self._result = result
        self._first_s, self._each_s = first_s, each_s

    async def execute(self, execution: Execution) -> None:
        """Sleep, then answer."""
        self._result.sizes.append(execution.batch_size)
        await asyncio.sleep(self._first_s + self._each_s * execution.batch_size)
        for reply in execution.replies:
            reply.send(())

    async def close(self) -> None:
        """Nothing to free."""


class Timed:
    """An outlet that notes when the answer came, and tells ``over``."""

    def __init__(self, result: Result, start_s: float, over: asyncio.Event | None = None) -> None:
        self._result = result
        self._start_s = start_s
        self._over = over

    def watch(self, taken: Callable[[], None]) -> None:
        """Nothing here watches."""

    def respond(self, response: InferResponse) -> None:
        """The answer."""
        self._result.latencies_s.append(time.perf_counter() - self._start_s)
        if self._over is not None:
            self._over.set()

    def fail(self, error: TribarError, *, is_final: bool) -> None:
        """Nothing here fails."""
        raise error


def scheduler(policy: BatchingPolicy, instance: Instance) -> InstanceScheduler:
    """One instance of a model of fixed shapes."""

    async def open_another(index: int) -> Instance:
        return instance

    signature = Signature(name="sleep", versions=("1",), platform="", inputs={}, outputs={}, max_batch_size=MAX_BATCH)
    return InstanceScheduler(signature, "1", policy, [instance], open_another, recorder=Recorder("sleep", "1"))


async def driven(policy: BatchingPolicy, arrivals_s: Sequence[float]) -> Result:
    """The real scheduler by the clock."""
    result = Result()
    model = scheduler(policy, SleepInstance(result))
    start_s = time.perf_counter()
    for at_s in arrivals_s:
        wait_s = start_s + at_s - time.perf_counter()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        model.submit(InferRequest(model_name="sleep"), Timed(result, start_s + at_s))
    await model.close()
    result.end_s = time.perf_counter() - start_s
    return result


async def cpu_us_per_request(policy: BatchingPolicy, n_together: int) -> float:
    """Of a request that meets an instance which costs nothing; ``n_together`` arrive in one turn of the loop."""
    result = Result()
    model = scheduler(policy, SleepInstance(result, 0, 0))
    start_s = time.process_time()
    for _ in range(N_CPU_REQUESTS // n_together):
        last = asyncio.Event()
        for number in range(n_together):
            model.submit(InferRequest(model_name="sleep"), Timed(result, 0, last if number == n_together - 1 else None))
        await last.wait()
    spent_s = time.process_time() - start_s
    await model.close()
    return spent_s / N_CPU_REQUESTS * 1e6


def main() -> None:
    """Print the sweep, then the cost."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=4.0, help="of arrivals for each line")
    parser.add_argument("--delays", type=int, nargs="+", default=[0, 5, 100], help="queue delays in milliseconds")
    options = parser.parse_args()
    print(f"an execution takes {FIRST_S * 1000:.1f} ms + {EACH_S * 1000:.1f} ms a request, at most {MAX_BATCH} of them")
    for load, per_s in LOADS_PER_S.items():
        arrivals_s = poisson(per_s, options.seconds)
        for delay_ms in options.delays:
            policy = BatchingPolicy(max_batch_size=MAX_BATCH, max_queue_delay_ns=delay_ms * 1_000_000)
            print(f"  {load} load ({per_s} requests/s), delay {delay_ms} ms")
            print(uvloop.run(driven(policy, arrivals_s)).line("measured"))
            print(simulated(policy, arrivals_s).line("simulated"))
    print("CPU time of a request in the scheduler")
    for name, policy in {
        "dynamic batching": BatchingPolicy(max_batch_size=MAX_BATCH),
        "alone": BatchingPolicy(max_batch_size=MAX_BATCH, shares_batches=False),
    }.items():
        for n_together in (1, 32):
            cost_us = uvloop.run(cpu_us_per_request(policy, n_together))
            print(f"  {name:17} {n_together:3} at once: {cost_us:6.1f} us")


if __name__ == "__main__":
    main()
