"""The pace of the native runner: decode and prefill, alone and with the engine's loop, beside what the machine allows.

Measured as rivals are: one process and one pool of blocks for all cases, equal prompts of random ids, then decode
steps of the whole batch; medians of steps and of three prefills. "alone" calls the runner, "engine" goes through
scheduler and KV cache as well. Shares are of two roofs, measured first with all cores: packed weights and KV of a
decode step over the bandwidth of memory, products with weights of a prefill (neither head nor attention) over the rate
of integer products.

    python -m benchmarks pace [--prompt 128] [--decode 64] [--batches 1,2,4,8,16,32] [--contexts 4096] [--threads 2]
"""

import argparse
import statistics
from collections.abc import Sequence
from time import perf_counter

import numpy as np

from benchmarks.drive import drive, submit
from benchmarks.model import engine, prompt
from benchmarks.roofs import demand_of, measure_machine
from tribar.core.ids import Row
from tribar.core.sampling.params import SamplingParams
from tribar.engine.config import SchedulerConfig
from tribar.engine.scheduler import Scheduler
from tribar.runtime.native.runner import BLOCK_SIZE, NativeRunner
from tribar.runtime.runner import AddRow, Int32s, Runner, StepPlan, Work
from tribar.runtime.sources import DEFAULT_MODEL, fetch_model

N_BLOCKS = 2048
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


def drop(runner: Runner, batch: int) -> None:
    """End the rows; their blocks may be handed out again."""
    nothing = int32s([])
    run_step(
        runner, StepPlan(0, Work(nothing, nothing, nothing, nothing.astype(bool)), drop=tuple(map(Row, range(batch))))
    )


def prefill(runner: Runner, batch: int, n_prompt: int, n_decode: int) -> float:
    """Seconds to prefill one prompt after the other, each in one step."""
    per_row = (n_prompt + n_decode) // BLOCK_SIZE + 1
    seconds = 0.0
    for i in range(batch):
        ids, blocks = int32s(prompt(i, n_prompt)), int32s(range(1 + i * per_row, 1 + (i + 1) * per_row))
        work = Work(int32s([i]), int32s([0]), int32s([n_prompt]), np.array([True]))
        add = (AddRow(Row(i), ids, n_prompt, GREEDY),)
        seconds += run_step(runner, StepPlan(0, work, add=add, append=((Row(i), blocks),)))
    return seconds


def alone(runner: Runner, batch: int, n_prompt: int, n_decode: int) -> tuple[float, float]:
    """Prefill tokens per second and the median seconds of a decode step."""
    prefills = [prefill(runner, batch, n_prompt, n_decode)]
    for _ in range(2):
        drop(runner, batch)
        prefills.append(prefill(runner, batch, n_prompt, n_decode))
    rows, ones, samples = int32s(range(batch)), int32s([1] * batch), np.full(batch, True)
    steps = [
        run_step(runner, StepPlan(0, Work(rows, int32s([n_prompt + i] * batch), ones, samples)))
        for i in range(n_decode)
    ]
    drop(runner, batch)
    return batch * n_prompt / statistics.median(prefills), statistics.median(steps)


def in_engine(scheduler: Scheduler, runner: Runner, batch: int, n_prompt: int, n_decode: int) -> tuple[float, float]:
    """The median seconds of a decode step with scheduler and commit, and the share of it outside the runner."""
    submits = [submit(i, prompt(1000 + i, n_prompt), n_decode) for i in range(batch)]
    run = drive(scheduler, runner, submits)
    decodes = [(step_s, runner_s) for n_tokens, step_s, runner_s in run.steps if n_tokens == batch]
    outside = statistics.median(1 - runner_s / step_s for step_s, runner_s in decodes)
    return statistics.median(step_s for step_s, _ in decodes), outside


def main() -> None:
    """Print the roofs, then one line per batch and context."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--batches", default="1,2,4,8,16,32")
    parser.add_argument("--contexts", default="4096", help="long contexts, at batch 1 and 4")
    parser.add_argument("--threads", type=int, default=2, help="of the measurement of the roofs")
    options = parser.parse_args()
    cases = [(int(batch), options.prompt) for batch in options.batches.split(",")]
    cases += [(batch, int(context)) for context in options.contexts.split(",") if context for batch in (1, 4)]
    machine = measure_machine(options.threads)
    print(f"memory read {machine.bytes_per_s / 1e9:.1f} GB/s, {machine.products_per_s / 1e9:.0f} G integer products/s")
    config = SchedulerConfig(max_num_seqs=64, max_num_batched_tokens=512, max_model_len=8192, prefix_caching=False)
    with engine(N_BLOCKS, config) as (_, runner), engine(N_BLOCKS, config) as (scheduler, scheduled):
        if not isinstance(runner, NativeRunner):
            raise TypeError("not the native runner")
        demand = demand_of(runner, fetch_model(DEFAULT_MODEL))
        alone(runner, 1, 128, 16)  # warm-up
        for batch, n_prompt in cases:
            prefill_tokens_per_s, step_s = alone(runner, batch, n_prompt, options.decode)
            loop_s, outside = in_engine(scheduler, scheduled, batch, n_prompt, options.decode)
            products = demand.product_share(machine, prefill_tokens_per_s)
            bandwidth = demand.bandwidth_share(machine, batch, n_prompt + options.decode // 2, step_s)
            print(
                f"batch {batch:2} context {n_prompt}: "
                f"prefill {prefill_tokens_per_s:.0f} tok/s ({products:.0%} of the products), "
                f"decode {batch / step_s:.0f} tok/s alone ({1000 * step_s:.2f} ms, {bandwidth:.0%} of the bandwidth), "
                f"{batch / loop_s:.0f} tok/s in the engine ({outside:.1%} outside the runner)",
                flush=True,
            )


if __name__ == "__main__":
    main()
