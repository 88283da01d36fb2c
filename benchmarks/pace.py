"""The pace of the native runner: decode and prefill, alone and with the engine's loop, beside what memory allows.

Measured as ``pace_llama_cpp.py`` and its like measure other engines: equal prompts of random ids, then decode steps of
the whole batch; medians of steps. "alone" calls the runner, "engine" goes through scheduler and KV cache as well.

    python -m benchmarks pace [--prompt 128] [--decode 64] [--batches 1,2,4,8,16,32] [--contexts 4096]
"""

import argparse
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np

from benchmarks.drive import drive, submit
from benchmarks.model import engine, prompt
from tribar.core.ids import Row
from tribar.core.sampling.params import SamplingParams
from tribar.engine.config import SchedulerConfig
from tribar.engine.scheduler import Scheduler
from tribar.runtime.runner import AddRow, Int32s, Runner, StepPlan, Work

BLOCK_SIZE = 16
GREEDY = SamplingParams(temperature=0.0, seed=0)


def int32s(values: Sequence[int]) -> Int32s:
    """What plans are made of."""
    return np.asarray(values, dtype=np.int32)


def run_step(runner: Runner, plan: StepPlan) -> float:
    """Seconds of one step."""
    start = perf_counter()
    ticket = runner.launch(plan)
    runner.sample(ticket)
    runner.collect(ticket)
    return perf_counter() - start


def alone(runner: Runner, batch: int, n_prompt: int, n_decode: int) -> tuple[float, float]:
    """Prefill tokens per second (one prompt after the other) and the median seconds of a decode step."""
    per_row = (n_prompt + n_decode) // BLOCK_SIZE + 1
    prefill_s = 0.0
    for i in range(batch):
        ids, blocks = int32s(prompt(i, n_prompt)), int32s(range(1 + i * per_row, 1 + (i + 1) * per_row))
        work = Work(int32s([i]), int32s([0]), int32s([n_prompt]), np.array([True]))
        add = (AddRow(Row(i), ids, n_prompt, GREEDY),)
        prefill_s += run_step(runner, StepPlan(i, work, add=add, append=((Row(i), blocks),)))
    rows, ones, samples = int32s(range(batch)), int32s([1] * batch), np.full(batch, True)
    steps = [
        run_step(runner, StepPlan(batch + i, Work(rows, int32s([n_prompt + i] * batch), ones, samples)))
        for i in range(n_decode)
    ]
    return batch * n_prompt / prefill_s, statistics.median(steps)


def in_engine(scheduler: Scheduler, runner: Runner, batch: int, n_prompt: int, n_decode: int) -> tuple[float, float]:
    """The median seconds of a decode step with scheduler and commit, and the share of it outside the runner."""
    submits = [submit(i, prompt(1000 + i, n_prompt), n_decode) for i in range(batch)]
    run = drive(scheduler, runner, submits)
    decodes = [(step_s, runner_s) for n_tokens, step_s, runner_s in run.steps if n_tokens == batch]
    outside = statistics.median(1 - runner_s / step_s for step_s, runner_s in decodes)
    return statistics.median(step_s for step_s, _ in decodes), outside


def read_bandwidth(n_threads: int, n_bytes: int = 1 << 30) -> float:
    """Bytes per second that all cores read from memory together, best of five."""
    parts = np.array_split(np.ones(n_bytes // 8), n_threads)
    best = 0.0
    with ThreadPoolExecutor(n_threads) as pool:
        for _ in range(5):
            start = perf_counter()
            list(pool.map(np.max, parts))
            best = max(best, n_bytes / (perf_counter() - start))
    return best


def main() -> None:
    """Print one line per batch and context."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--batches", default="1,2,4,8,16,32")
    parser.add_argument("--contexts", default="4096", help="long contexts, at batch 1 and 4")
    parser.add_argument("--threads", type=int, default=2, help="of the bandwidth measurement")
    options = parser.parse_args()
    cases = [(int(batch), options.prompt) for batch in options.batches.split(",")]
    cases += [(batch, int(context)) for context in options.contexts.split(",") if context for batch in (1, 4)]
    print(f"memory read {read_bandwidth(options.threads) / 1e9:.1f} GB/s")
    config = SchedulerConfig(max_num_seqs=64, max_num_batched_tokens=512, max_model_len=8192, prefix_caching=False)
    with engine(64, config) as (_, runner):
        alone(runner, 1, 128, 16)  # warm-up
    for batch, n_prompt in cases:
        with engine(2048, config) as (_, runner):
            prefill, step_s = alone(runner, batch, n_prompt, options.decode)
        with engine(2048, config) as (scheduler, runner):
            loop_s, outside = in_engine(scheduler, runner, batch, n_prompt, options.decode)
        by_itself = f"{batch / step_s:.0f} tok/s alone ({1000 * step_s:.2f} ms)"
        with_loop = f"{batch / loop_s:.0f} tok/s in the engine ({outside:.1%} outside the runner)"
        print(f"batch {batch:2} context {n_prompt}: prefill {prefill:.0f} tok/s, decode {by_itself}, {with_loop}")


if __name__ == "__main__":
    main()
