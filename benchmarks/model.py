"""The model and the runner that benchmarks use: the embedded default on the native runner, all cores."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

from tribar.engine.config import SchedulerConfig
from tribar.engine.scheduler import Scheduler
from tribar.runtime.runner import Runner
from tribar.runtime.runners import RunnerConfig, create_runner
from tribar.runtime.sources import DEFAULT_MODEL, fetch_model

VOCABULARY = range(100, 40_000)


@contextmanager
def engine(n_blocks: int, config: SchedulerConfig, kind: str = "native") -> Iterator[tuple[Scheduler, Runner]]:
    """A scheduler and a loaded runner of the default model with a pool of ``n_blocks``."""
    runner = create_runner(
        kind,
        RunnerConfig(
            model_path=fetch_model(DEFAULT_MODEL),
            n_blocks=n_blocks,
            max_model_len=config.max_model_len,
            max_rows=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
        ),
    )
    info = runner.load()
    try:
        yield Scheduler(config, info), runner
    finally:
        runner.close()


def prompt(seed: int, n_tokens: int) -> list[int]:
    """Random ids: the same for the same seed."""
    rng = random.Random(seed)
    return [rng.choice(VOCABULARY) for _ in range(n_tokens)]
