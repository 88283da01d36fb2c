"""What the machine can do at most, and which share of it a model's steps reach."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from time import perf_counter

import numpy as np

from tribar.runtime.architectures.checkpoint import open_checkpoint
from tribar.runtime.native._native import kernels
from tribar.runtime.native.runner import BLOCK_SIZE, NativeRunner

PRODUCTS_PER_ROUND = 12 * 64
"""Of ``kernels.multiply_registers``."""


@dataclass(frozen=True)
class Machine:
    """What all cores reach together."""

    bytes_per_s: float
    products_per_s: float
    """Multiplications of bytes, each with its addition."""


@dataclass(frozen=True)
class Demand:
    """What a model asks of the machine."""

    weight_bytes: int
    """Read by every decode step."""
    kv_bytes_per_position: int
    products_per_token: int
    """With the matrices of all layers: a prefill computes the head for its last position only."""

    def bandwidth_share(self, machine: Machine, batch: int, context: int, step_s: float) -> float:
        """Of a decode step over ``context`` positions of each row."""
        n_bytes = self.weight_bytes + batch * context * self.kv_bytes_per_position
        return n_bytes / step_s / machine.bytes_per_s

    def product_share(self, machine: Machine, tokens_per_s: float) -> float:
        """Of a prefill; attention, which computes in floating point, counts as nothing."""
        return self.products_per_token * tokens_per_s / machine.products_per_s


def measure_machine(n_threads: int) -> Machine:
    """Both roofs, each the best of five."""
    return Machine(_read_bandwidth(n_threads), _product_rate(n_threads))


def demand_of(runner: NativeRunner, path: Path) -> Demand:
    """Of the model at ``path`` (with a tied head) as ``runner`` has loaded it."""
    checkpoint = open_checkpoint(path)
    try:
        shapes = [checkpoint.info(name).shape for name in checkpoint.names if name.startswith("layers.")]
    finally:
        checkpoint.close()
    return Demand(
        weight_bytes=runner.packed_bytes,
        kv_bytes_per_position=runner.block_bytes // BLOCK_SIZE,
        products_per_token=sum(prod(shape) for shape in shapes if len(shape) == 2),
    )


def _read_bandwidth(n_threads: int, n_bytes: int = 1 << 30) -> float:
    parts = np.array_split(np.ones(n_bytes // 8), n_threads)
    return n_bytes / _best_seconds([partial(np.max, part) for part in parts])


def _product_rate(n_threads: int, n_rounds: int = 10_000_000) -> float:
    level = kernels.level_for("")
    seconds = _best_seconds([lambda: kernels.multiply_registers(level, n_rounds)] * n_threads)
    return n_threads * n_rounds * PRODUCTS_PER_ROUND / seconds


def _best_seconds(works: list[Callable[[], object]]) -> float:
    """Of five times all ``works`` at once, one thread each; they do not hold Python's lock."""
    times = []
    with ThreadPoolExecutor(len(works)) as pool:
        for _ in range(5):
            start = perf_counter()
            list(pool.map(lambda work: work(), works))
            times.append(perf_counter() - start)
    return min(times)
