"""The real scheduler on the strict FakeRunner: no breach of the runner contract, and everyone's tokens as if alone.

The FakeRunner refuses a plan that reads or writes what it must not; the tokens are checked against the reference
sampler, request by request, without scheduler and runner (laws 1, 3, 5, 7, 8; BUG-025, BUG-031, BUG-032, BUG-034).
"""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from tests.contract.served_scheduler import Request, ServedScheduler

from tribar.core.sampling.params import SamplingParams, Wants
from tribar.core.sampling.reference import sample_row
from tribar.engine.config import Allocator, Batching, SchedulerConfig
from tribar.runtime.fake.runner import FakeRunner
from tribar.runtime.fake.script import logits_script
from tribar.runtime.runners import RunnerConfig
from tribar.wire.messages import Finished

VOCAB_SIZE = 50
MAX_MODEL_LEN = 64
STOP_ID = 7
SCRIPT = logits_script(VOCAB_SIZE)


def served(rng: Random, batching: Batching, allocator: Allocator, depth: int, k: int) -> ServedScheduler:
    n_seqs = rng.randint(1, 6)
    budget = rng.choice([n_seqs, 8, 40])
    block_size = rng.choice([1, 4, 16])
    config = RunnerConfig(
        model_path=Path("unused"),
        n_blocks=1 + rng.choice([1, 2, 6]) * MAX_MODEL_LEN // block_size,
        max_model_len=MAX_MODEL_LEN,
        max_rows=rng.randint(n_seqs, 8),
        max_num_batched_tokens=budget,
        block_size=block_size,
    )
    limits = SchedulerConfig(
        max_num_seqs=n_seqs,
        max_num_batched_tokens=budget,
        max_model_len=MAX_MODEL_LEN,
        batching=batching,
        allocator=allocator,
        prefix_caching=rng.random() < 0.8,
    )
    runner = FakeRunner(config, vocab_size=VOCAB_SIZE, script=SCRIPT, depth=depth, max_tokens_per_step=k)
    return ServedScheduler(limits, runner)


def add_random(rng: Random, engine: ServedScheduler, stem: list[int]) -> Request:
    n = rng.randrange(1, MAX_MODEL_LEN // 2)
    prompt = stem[:n] if rng.random() < 0.5 else [rng.randrange(VOCAB_SIZE) for _ in range(n)]
    sampling = SamplingParams(
        temperature=rng.choice([0.0, 1.3]),
        seed=rng.getrandbits(64),
        top_k=rng.choice([0, 5]),
        frequency_penalty=rng.choice([0.0, 0.7]),
        min_tokens=rng.choice([0, 0, 3]),
        suppressed=(STOP_ID,),
    )
    wants = Wants(logprobs=rng.choice([None, 0, 2]), prompt_logprobs=rng.choice([None, None, 1]))
    max_tokens = rng.randrange(3, 40)
    priority = rng.choice([0, 0, 0, 1])
    return engine.add(prompt, max_tokens, sampling=sampling, stop_ids=(STOP_ID,), wants=wants, priority=priority)


def alone(request: Request) -> list[int]:
    """What the reference sampler draws for the request; neither scheduler nor runner takes part."""
    prompt, output = request.prompt, list[int]()
    while len(output) < request.submit.max_tokens and len(prompt) + len(output) < MAX_MODEL_LEN:
        logits = SCRIPT(np.array([*prompt, *output], dtype=np.int32), len(prompt))
        assert not isinstance(logits, int)
        token = sample_row(
            logits, request.submit.sampling, output_index=len(output), prompt_ids=prompt, output_ids=output
        )
        if token == STOP_ID:
            break
        output.append(token)
    return output


def check_answer(request: Request) -> None:
    expected = alone(request)
    assert request.ids == expected[: len(request.ids)]
    if request.submit.wants.logprobs is not None:
        assert [entry.token_id for entry in request.logprobs] == request.ids
    if not isinstance(request.terminal, Finished):
        return
    assert request.ids == expected
    is_stop = request.terminal.stop_id is not None
    assert request.terminal.n_output == len(expected) + is_stop
    if request.submit.wants.prompt_logprobs is not None:
        scored = [None if entry is None else entry.token_id for entry in request.prompt_logprobs]
        assert scored == [None, *request.prompt[1:]]


def play(seed: object, batching: Batching, allocator: Allocator, depth: int, k: int, n_steps: int) -> int:
    """Random arrivals and aborts; how often someone was preempted."""
    rng = Random(f"{seed} {batching} {allocator} {depth} {k}")
    engine = served(rng, batching, allocator, depth, k)
    stem = [rng.randrange(VOCAB_SIZE) for _ in range(MAX_MODEL_LEN)]
    for _ in range(n_steps):
        if rng.random() < 0.3:
            add_random(rng, engine, stem)
        if rng.random() < 0.05 and engine.requests:
            engine.abort(rng.choice(list(engine.requests.values())))
        engine.step()
    engine.run()
    for request in engine.requests.values():
        check_answer(request)
    return engine.scheduler.stats().n_preemptions


@pytest.mark.parametrize(("depth", "k"), [(1, 1), (2, 1), (3, 1), (1, 3)])
@pytest.mark.parametrize("allocator", ["paged", "contiguous"])
@pytest.mark.parametrize("batching", ["continuous", "dynamic", "static"])
def test_everyone_gets_the_tokens_of_a_lone_run(batching: Batching, allocator: Allocator, depth: int, k: int) -> None:
    for seed in range(2):
        play(seed, batching, allocator, depth, k, n_steps=60)


@pytest.mark.parametrize(("depth", "k"), [(1, 1), (2, 1), (1, 3)])
def test_small_pools_preempt(depth: int, k: int) -> None:
    """The fuzz is worth nothing where nobody is ever preempted."""
    assert sum(play(seed, "continuous", "paged", depth, k, n_steps=60) for seed in range(4)) > 2


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("depth", "k"), [(1, 1), (2, 1), (3, 1), (1, 2), (1, 4)])
@pytest.mark.parametrize("batching", ["continuous", "dynamic", "static"])
def test_everyone_gets_the_tokens_of_a_lone_run_long(batching: Batching, depth: int, k: int, seed: int) -> None:
    play(seed, batching, "paged", depth, k, n_steps=300)
    play(seed, batching, "contiguous", depth, k, n_steps=100)
