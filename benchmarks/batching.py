"""Heavy tails: continuous over static and dynamic batching when 97 % want 5 tokens and 3 % want 1,000.

Static keeps finished rows computing until the longest ends (the baseline of the published 10-20x); dynamic runs a
batch to its end but lets finished rows leave. First the real model, then the same policies over many more requests on
a virtual clock whose step cost was measured on the real runner in this run.

    python -m benchmarks batching [--requests 256] [--simulated 4000] [--batch 32]
"""

import argparse
import random
import statistics

from benchmarks.drive import Run, StepCost, drive, submit
from benchmarks.model import engine, prompt
from benchmarks.virtual import Tokens
from tribar.engine.config import Batching, SchedulerConfig
from tribar.engine.scheduler import Scheduler
from tribar.runtime.runner import RunnerInfo, StepPlan
from tribar.wire.messages import Submit

POLICIES: tuple[Batching, ...] = ("continuous", "dynamic", "static")
N_PROMPT = 16
N_BLOCKS = 4096
LONG, SHORT, LONG_SHARE = 1000, 5, 0.03


def config(batching: Batching, batch: int) -> SchedulerConfig:
    """The same limits for every policy."""
    return SchedulerConfig(
        max_num_seqs=batch,
        max_num_batched_tokens=2048,
        max_model_len=2048,
        max_waiting=1_000_000,
        prefix_caching=False,
        batching=batching,
        dynamic_preferred_size=batch,
    )


def requests(n_requests: int) -> list[Submit]:
    """Exactly 3 % long ones, spread at random."""
    rng = random.Random(0)
    n_long = round(n_requests * LONG_SHARE)
    lengths = [LONG] * n_long + [SHORT] * (n_requests - n_long)
    rng.shuffle(lengths)
    return [submit(i, prompt(i, N_PROMPT), length) for i, length in enumerate(lengths)]


def measured_cost(batch: int) -> StepCost:
    """Seconds of a step as a line through decode steps of 1 and ``batch`` rows."""
    points = []
    for n_rows in (1, batch):
        submits = [submit(i, prompt(i, N_PROMPT), 40) for i in range(n_rows)]
        with engine(N_BLOCKS, config("continuous", batch)) as (scheduler, runner):
            run = drive(scheduler, runner, submits)
        points.append(
            (n_rows, statistics.median(runner_s for n_tokens, _, runner_s in run.steps if n_tokens == n_rows))
        )
    (one, one_s), (many, many_s) = points
    per_row_s = (many_s - one_s) / (many - one)
    print(f"measured step: {one_s * 1000:.1f} ms for 1 row, {many_s * 1000:.1f} ms for {batch}")

    def cost(plan: StepPlan) -> float:
        return one_s + per_row_s * (int(plan.work.n_tokens.sum()) - 1)

    return cost


def compare(title: str, runs: dict[Batching, Run]) -> None:
    """Throughput of each policy and the ratios."""
    print(title)
    for name, run in runs.items():
        late = sorted(course.end_s for course in run.courses.values() if course.n_output == SHORT)
        print(
            f"  {name:11} {run.tokens_per_s:8.1f} tok/s  {run.n_steps:7} steps  "
            f"short answers done: p50 {late[len(late) // 2]:8.1f} s, p99 {late[int(len(late) * 0.99)]:8.1f} s"
        )
    for name in POLICIES[1:]:
        print(f"  continuous / {name}: {runs['continuous'].tokens_per_s / runs[name].tokens_per_s:.1f}x")


def simulate(n_requests: int, batch: int, cost: StepCost) -> dict[Batching, Run]:
    """All policies on the virtual clock: the real scheduler, no model."""
    info = RunnerInfo(n_blocks=N_BLOCKS, block_size=16, max_rows=batch, vocab_size=49_152, max_model_len=2048)
    return {
        batching: drive(Scheduler(config(batching, batch), info), Tokens(), requests(n_requests), cost)
        for batching in POLICIES
    }


def main() -> None:
    """Print the real comparison, then the simulated one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=256)
    parser.add_argument("--simulated", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=32)
    options = parser.parse_args()
    runs: dict[Batching, Run] = {}
    cost = measured_cost(options.batch)
    for batching in POLICIES:
        with engine(N_BLOCKS, config(batching, options.batch)) as (scheduler, runner):
            runs[batching] = drive(scheduler, runner, requests(options.requests))
        print(f"{batching}: {runs[batching].seconds:.0f} s", flush=True)
    compare(f"{options.requests} requests, batch {options.batch}, SmolLM2-135M on the native runner", runs)
    compare(f"{options.simulated} requests, virtual clock", simulate(options.simulated, options.batch, cost))


if __name__ == "__main__":
    main()
