"""Steps of a tiny native model in a process of its own; prints how often each step allocated."""

import ctypes
from pathlib import Path

import numpy as np
from tests.contract.runner_driver import Ask, Masks, RunnerDriver
from tests.weights_in_memory import tiny_checkpoint

from tribar.core.ids import Row
from tribar.core.sampling.params import SamplingParams, Wants
from tribar.runtime.native.runner import NativeRunner
from tribar.runtime.runners import RunnerConfig

COUNTER = ctypes.PyDLL(None)  # keeps the lock
WITHOUT_LOCK = ctypes.CDLL(None)
IDS = [5, 17, 3, 88, 41, 9, 60, 22]
PLAIN = [
    Ask(IDS * 8),
    Ask(IDS, SamplingParams(temperature=1.0, seed=1)),
    Ask(IDS[::-1], SamplingParams(temperature=0.8, top_p=0.9, seed=2)),
    Ask(IDS * 2, SamplingParams(temperature=0.8, top_k=5, min_p=0.01, seed=3)),
    Ask(IDS * 3, SamplingParams(temperature=0, repetition_penalty=1.3, presence_penalty=0.5, logit_bias=((7, 2.0),))),
    Ask(IDS * 4, SamplingParams(temperature=0, min_tokens=3, suppressed=(5, 7))),
]
WANTING = [
    Ask(IDS * 2, wants=Wants(logprobs=5)),
    Ask(IDS * 2, wants=Wants(prompt_logprobs=3)),
    Ask(IDS * 2, wants=Wants(hidden=True)),
]


def n_allocations(driver: RunnerDriver, n_tokens: dict[Row, int], masks: Masks | None = None) -> int:
    COUNTER.start_counting()
    driver.step(n_tokens, masks)
    return int(COUNTER.stop_counting())


def lives(driver: RunnerDriver, asks: list[Ask], masked: int | None = None) -> list[int]:
    """A prefill of all together, three decodes, the end."""
    rows = [driver.add(ask) for ask in asks]
    masks = None if masked is None else {rows[masked]: np.full(4, 0x0F0F0F0F, dtype=np.uint32)}
    counts = [n_allocations(driver, {row: len(ask.ids) for row, ask in zip(rows, asks, strict=True)}, masks)]
    counts += [n_allocations(driver, dict.fromkeys(rows, 1), masks) for _ in range(3)]
    driver.drop(*rows)
    driver.flush()
    return counts


def main() -> None:
    config = RunnerConfig(model_path=Path("memory"), n_blocks=200, max_model_len=100, max_rows=8, n_threads=2)
    runner = NativeRunner(config, open_checkpoint=lambda path, length: tiny_checkpoint(path, length, head_dim=16))
    driver = RunnerDriver(runner, runner.load())
    COUNTER.start_counting()
    WITHOUT_LOCK.malloc(8)
    print("control", COUNTER.stop_counting())
    print("plain", *lives(driver, PLAIN, masked=1))
    lives(driver, WANTING)
    print("wanting", *lives(driver, WANTING))


if __name__ == "__main__":
    main()
