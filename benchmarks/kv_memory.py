"""KV memory: how full allocated slots are at full load, and paged against contiguous at equal memory.

Claim to check (vLLM, Kwon et al. 2023): paging serves about twice the sequences of reserving ``max_model_len`` each.

    python -m benchmarks kv_memory [--requests 96] [--max-model-len 1024] [--contiguous-seqs 8]
"""

import argparse
import random
import statistics
from collections.abc import Sequence

from benchmarks.drive import Run, drive, submit
from benchmarks.model import engine, prompt
from tribar.engine.config import Allocator, SchedulerConfig

BLOCK_SIZE = 16


def measure(allocator: Allocator, n_blocks: int, max_model_len: int, lengths: Sequence[tuple[int, int]]) -> Run:
    """All requests at once, through a pool of ``n_blocks``."""
    config = SchedulerConfig(
        max_num_seqs=64,
        max_num_batched_tokens=512,
        max_model_len=max_model_len,
        prefix_caching=False,
        allocator=allocator,
    )
    submits = [submit(i, prompt(i, n_prompt), n_output) for i, (n_prompt, n_output) in enumerate(lengths)]
    with engine(n_blocks, config) as (scheduler, runner):
        return drive(scheduler, runner, submits)


def full_load(run: Run) -> tuple[float, float]:
    """Median running sequences and median slot use over the middle half of the run's steps."""
    middle = slice(run.n_steps // 4, 3 * run.n_steps // 4)
    return statistics.median(run.n_running[middle]), statistics.median(run.slot_use[middle])


def main() -> None:
    """Print both allocators side by side."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=96)
    parser.add_argument("--max-model-len", type=int, default=1024)
    parser.add_argument("--contiguous-seqs", type=int, default=8, help="how many sequences the pool holds contiguously")
    options = parser.parse_args()
    rng = random.Random(0)
    lengths = [(rng.randint(100, 400), rng.randint(50, 150)) for _ in range(options.requests)]
    n_blocks = options.contiguous_seqs * options.max_model_len // BLOCK_SIZE + 1
    print(f"{options.requests} requests, prompts 100-400, outputs 50-150, pool {n_blocks - 1} blocks of {BLOCK_SIZE}")
    allocators: tuple[Allocator, ...] = ("paged", "contiguous")
    runs = {allocator: measure(allocator, n_blocks, options.max_model_len, lengths) for allocator in allocators}
    for name, run in runs.items():
        running, use = full_load(run)
        pace = f"{run.tokens_per_s:7.1f} tok/s, {run.n_steps} steps"
        print(f"{name:11} running {running:5.1f}, slots used {use:6.1%}, {pace}")
    paged, contiguous = runs["paged"], runs["contiguous"]
    print(
        f"paged / contiguous: running {full_load(paged)[0] / full_load(contiguous)[0]:.2f}x, "
        f"tokens per second {paged.tokens_per_s / contiguous.tokens_per_s:.2f}x"
    )


if __name__ == "__main__":
    main()
