"""What one step costs the scheduler: plan and commit with 64 sequences decoding, and with chunks being prefilled.

Target: under 0.5 ms a step, so that a step of a few milliseconds on the runner is not held up. The runner is replaced
by ready-made results.

    python -m benchmarks scheduler_step
"""

import argparse
from statistics import median
from time import perf_counter

import numpy as np

from tribar.core.ids import Row, Uid
from tribar.core.sampling.params import SamplingParams
from tribar.engine.config import SchedulerConfig
from tribar.engine.scheduler import Scheduler
from tribar.runtime.runner import RowResult, RunnerInfo, StepPlan, StepResult
from tribar.wire.messages import Submit

N_SEQUENCES = 64
N_PROMPT = 512
N_OUTPUT = 400


def result_of(plan: StepPlan) -> StepResult:
    rows = zip(plan.work.rows.tolist(), plan.work.samples.tolist(), strict=True)
    return StepResult(plan.step, [RowResult(Row(row), [row + plan.step] if samples else []) for row, samples in rows])


def measure(title: str, n_waiting: int, n_output: int, n_tenants: int = 1) -> None:
    info = RunnerInfo(n_blocks=20_000, block_size=16, max_rows=N_SEQUENCES, vocab_size=50_000, max_model_len=8192)
    config = SchedulerConfig(max_num_seqs=N_SEQUENCES, max_waiting=1 << 20, max_waiting_tokens=1 << 30)
    scheduler = Scheduler(config, info)
    rng = np.random.default_rng(0)
    for number in range(N_SEQUENCES + n_waiting):
        ids = rng.integers(0, info.vocab_size, N_PROMPT, dtype="<i4").tobytes()
        tenant = f"tenant {number % n_tenants}"
        scheduler.add(Submit(Uid(1, number), ids, SamplingParams(), n_output, tenant=tenant), 0.0)
    plans_s: list[float] = []
    commits_s: list[float] = []
    while (start_s := perf_counter()) and (plan := scheduler.plan(0.0)) is not None:
        planned_s = perf_counter()
        result = result_of(plan)
        ready_s = perf_counter()
        scheduler.commit(plan, result, 0.0)
        plans_s.append(planned_s - start_s)
        commits_s.append(perf_counter() - ready_s)
    scheduler.assert_idle()
    steps_s = np.add(plans_s, commits_s)
    print(
        f"{title}: {len(steps_s)} steps, median plan {1e3 * median(plans_s):.3f} ms, commit "
        f"{1e3 * median(commits_s):.3f} ms, both {1e3 * median(steps_s):.3f} ms "
        f"(p99 {1e3 * np.percentile(steps_s, 99):.3f} ms)"
    )


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    measure("64 sequences, mostly decoding", n_waiting=0, n_output=N_OUTPUT)
    measure("64 rows kept full from a queue", n_waiting=1000, n_output=40)
    measure("the same from 4096 requests of 64 tenants", n_waiting=4096, n_output=40, n_tenants=64)
    measure("the same from 4096 requests of 4096 tenants", n_waiting=4096, n_output=40, n_tenants=4096)


if __name__ == "__main__":
    main()
