"""Law 15 on the real model: a row's logits are equal in every bit, however and among whom they are computed.

The unit tests have every combination on tiny models; here each type of weights and of KV comes at least twice, and the
CPU levels take turns.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.contract.runner_driver import Ask, Got, RunnerDriver
from tests.contract.served_scheduler import Request, ServedScheduler

from tribar.core.sampling.params import TokenLogprobs, Wants
from tribar.engine.config import SchedulerConfig
from tribar.runtime.native._native import kernels
from tribar.runtime.native.runner import BLOCK_SIZE, NativeRunner
from tribar.runtime.runners import RunnerConfig
from tribar.runtime.sources import DEFAULT_MODEL, fetch_model
from tribar.runtime.text.text import load_text

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

MAX_MODEL_LEN = 640
N_NEW = 30
PLENTY = 160
"""Blocks."""


class Mode(NamedTuple):
    weights: str
    kv: str
    level: str


TYPES = [
    ("auto", "bf16"),
    ("int8", "f32"),
    ("bf16", "int8"),
    ("f32", "bf16"),
    ("auto", "int8"),
    ("int8", "bf16"),
    ("bf16", "f32"),
    ("f32", "f32"),
]
LEVELS = kernels.levels()
MODES = [Mode(*types, LEVELS[i % len(LEVELS)]) for i, types in enumerate(TYPES)]
every_mode = pytest.mark.parametrize("mode", MODES, ids="-".join)


@pytest.fixture(scope="module")
def ids() -> list[int]:
    """A real text of 1,000 tokens."""
    text = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8")
    return load_text(fetch_model(DEFAULT_MODEL)).tokenizer.encode(text, add_special=False)[:1000]


def asked(ids: list[int], level: str) -> list[list[int]]:
    """One of more than a span of 512 positions (at the best level) and others; the fourth begins like the first."""
    longest = 530 if level == LEVELS[0] else 60
    return [
        ids[:longest],
        ids[600:603],
        ids[700:740],
        ids[: min(100, longest - 10)],
        ids[800 : 800 + min(130, longest)],
    ]


def runner_for(mode: Mode, n_threads: int, n_blocks: int) -> NativeRunner:
    config = RunnerConfig(
        model_path=fetch_model(DEFAULT_MODEL),
        n_blocks=n_blocks,
        max_model_len=MAX_MODEL_LEN,
        max_rows=8,
        weights=mode.weights,
        kv_cache_dtype=mode.kv,
        n_threads=n_threads,
    )
    return NativeRunner(config, level=mode.level)


@every_mode
def test_all_logits_alone_and_in_company_in_chunks_with_two_threads(mode: Mode, ids: list[int]) -> None:
    prompts = asked(ids, mode.level)

    def generate(n_threads: int, others: Sequence[list[int]], chunk: int) -> Got:
        runner = runner_for(mode, n_threads, PLENTY)
        info = runner.load()
        driver = RunnerDriver(runner, info, shuffle=n_threads)
        asks = [Ask(other) for other in others]
        asks.append(Ask(prompts[0], wants=Wants(logprobs=info.vocab_size, hidden=True)))
        got = driver.generate(asks, 2, chunk=chunk)[-1]
        runner.close()
        return got

    alone, together = generate(1, [], 64), generate(2, prompts[1:], 37)
    assert len(alone.logprobs) == len(alone.hidden) == 2
    assert together.tokens == alone.tokens
    assert together.logprobs == alone.logprobs
    assert [hidden.tobytes() for hidden in together.hidden] == [hidden.tobytes() for hidden in alone.hidden]


def served(
    mode: Mode, n_threads: int, n_blocks: int, n_step_tokens: int, *, has_cache: bool = False
) -> ServedScheduler:
    limits = SchedulerConfig(
        max_num_seqs=8,
        max_num_batched_tokens=n_step_tokens,
        max_model_len=MAX_MODEL_LEN,
        prefix_caching=has_cache,
    )
    return ServedScheduler(limits, runner_for(mode, n_threads, n_blocks))


def answers(engine: ServedScheduler, prompts: Sequence[list[int]]) -> list[Request]:
    """To all prompts at once."""
    requests = [engine.add(prompt, N_NEW, wants=Wants(logprobs=20)) for prompt in prompts]
    engine.run()
    return requests


def bits(requests: Sequence[Request]) -> list[tuple[list[int], list[TokenLogprobs]]]:
    assert all(len(request.logprobs) == N_NEW for request in requests)
    return [(request.ids, request.logprobs) for request in requests]


def n_blocks_of(n_tokens: int) -> int:
    return -(-n_tokens // BLOCK_SIZE)


@every_mode
def test_preempted_and_recomputed_or_from_the_prefix_cache(mode: Mode, ids: list[int]) -> None:
    prompts = asked(ids, mode.level)
    engine = served(mode, n_threads=1, n_blocks=PLENTY, n_step_tokens=600)
    alone = [bits(answers(engine, [prompt]))[0] for prompt in prompts]
    engine.runner.close()

    # just so many that all are admitted: admission leaves a block for each that runs already
    n_blocks = 1 + sum(n_blocks_of(len(prompt)) for prompt in prompts) + len(prompts) - 1
    engine = served(mode, n_threads=2, n_blocks=n_blocks, n_step_tokens=48)
    assert bits(answers(engine, prompts)) == alone
    assert engine.scheduler.stats().n_preemptions > 0
    assert engine.n_computed() > sum(map(len, prompts)) + len(prompts) * N_NEW
    engine.runner.close()

    engine = served(mode, n_threads=2, n_blocks=PLENTY, n_step_tokens=100, has_cache=True)
    assert bits(answers(engine, prompts[:1])) == alone[:1]
    requests = answers(engine, prompts)
    assert bits(requests) == alone
    n_shared = [(len(prompts[i]) - 1) // BLOCK_SIZE * BLOCK_SIZE for i in (0, 3)]
    assert [request.finished.n_cached for request in requests] == [n_shared[0], 0, 0, n_shared[1], 0]
    engine.runner.close()
