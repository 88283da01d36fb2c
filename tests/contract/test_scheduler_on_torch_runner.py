"""The real scheduler on the real runner: nobody's tokens depend on who shares the batch, the blocks or the cache.

The model is a tiny random one. A divergence counts as equal only where the lone run's two likeliest tokens are closer
than ``MARGIN`` (law 15); how many there were is printed.
"""

from pathlib import Path
from random import Random

import pytest
from tests.contract.served_scheduler import Request, ServedScheduler
from tests.weights_in_memory import tiny_checkpoint

from tribar.core.sampling.params import SamplingParams, Wants
from tribar.engine.config import SchedulerConfig
from tribar.runtime.runners import RunnerConfig
from tribar.runtime.torch.runner import TorchRunner
from tribar.wire.messages import Stats

VOCAB_SIZE = 96
MAX_MODEL_LEN = 96
BLOCK_SIZE = 4
N_REQUESTS = 32
MARGIN = 1e-3
BLOCKS_FOR_ALL = 1 + N_REQUESTS * MAX_MODEL_LEN // BLOCK_SIZE

TOP_TWO = Wants(logprobs=2)


def served(*, n_blocks: int = BLOCKS_FOR_ALL, max_num_seqs: int = N_REQUESTS, depth: int = 1) -> ServedScheduler:
    config = RunnerConfig(
        model_path=Path("unused"),
        n_blocks=n_blocks,
        max_model_len=MAX_MODEL_LEN,
        max_rows=max_num_seqs,
        max_num_batched_tokens=48,
        block_size=BLOCK_SIZE,
        n_threads=1,
    )
    limits = SchedulerConfig(max_num_seqs=max_num_seqs, max_num_batched_tokens=48, max_model_len=MAX_MODEL_LEN)
    return ServedScheduler(limits, TorchRunner(config, open_checkpoint=tiny_checkpoint, depth=depth))


def prompts(rng: Random) -> list[list[int]]:
    """Some share a beginning, so that blocks are shared while others write theirs."""
    stem = [rng.randrange(VOCAB_SIZE) for _ in range(30)]
    return [
        stem[: rng.randint(0, 30) if i % 3 == 0 else 0] + [rng.randrange(VOCAB_SIZE) for _ in range(rng.randint(1, 20))]
        for i in range(N_REQUESTS)
    ]


def sampling_of(i: int) -> SamplingParams:
    """Every other one draws at random, from its own seed."""
    return SamplingParams(temperature=0.8 * (i % 2), seed=i)


def alone(asked: list[list[int]]) -> list[Request]:
    """Each on an idle engine without anyone's cached prefix."""
    engine = served(max_num_seqs=1)
    answers = []
    for i, prompt in enumerate(asked):
        answers.append(engine.add(prompt, 24, sampling=sampling_of(i), wants=TOP_TWO))
        engine.run()
        engine.scheduler.reset_cache()
    return answers


def n_close_calls(together: list[Request], lone: list[Request]) -> int:
    """How many diverged where the lone run itself was undecided; fails where it was not."""
    n = 0
    for i, (request, reference) in enumerate(zip(together, lone, strict=True)):
        assert len(request.ids) == len(reference.ids) == 24
        for position, (token, expected) in enumerate(zip(request.ids, reference.ids, strict=True)):
            if token != expected:
                first, second = reference.logprobs[position].top_logprobs
                message = f"request {i} diverges at token {position}: {request.ids} instead of {reference.ids}"
                assert i % 2 == 0, message
                assert first - second < MARGIN, message
                n += 1
                break
    return n


def ask_together(engine: ServedScheduler, asked: list[list[int]], order: list[int]) -> tuple[list[Request], Stats]:
    requests = {i: engine.add(asked[i], 24, sampling=sampling_of(i)) for i in order}
    engine.run()
    return [requests[i] for i in range(len(asked))], engine.scheduler.stats()


@pytest.fixture(scope="module")
def asked() -> list[list[int]]:
    return prompts(Random(5))


@pytest.fixture(scope="module")
def lone(asked: list[list[int]]) -> list[Request]:
    return alone(asked)


@pytest.mark.parametrize("depth", [1, 2])
def test_among_31_others_in_any_order(asked: list[list[int]], lone: list[Request], depth: int) -> None:
    """BUG-031: the same tokens as alone."""
    n = 0
    for seed in range(3):
        order = Random(seed).sample(range(N_REQUESTS), N_REQUESTS)
        together, stats = ask_together(served(depth=depth), asked, order)
        assert stats.n_preemptions == 0
        n += n_close_calls(together, lone)
    print(f"depth {depth}: {n} of {3 * N_REQUESTS} diverged within {MARGIN}")


@pytest.mark.parametrize("depth", [1, 2])
def test_in_a_pool_so_small_that_it_preempts(asked: list[list[int]], lone: list[Request], depth: int) -> None:
    """BUG-031, BUG-034: preempted, recomputed and resumed, with the same tokens and draws."""
    order = Random(9).sample(range(N_REQUESTS), N_REQUESTS)
    together, stats = ask_together(served(n_blocks=1 + 100, depth=depth), asked, order)
    assert stats.n_preemptions >= 5
    print(f"depth {depth}: {n_close_calls(together, lone)} of {N_REQUESTS} diverged within {MARGIN}")


@pytest.mark.parametrize("depth", [1, 2])
def test_one_at_its_last_step_and_the_next_in_its_blocks(depth: int) -> None:
    """D starts in the step after A's last one, in A's row and in A's very blocks, and reads nothing of A."""
    rng = Random(1)
    first, second = ([rng.randrange(VOCAB_SIZE) for _ in range(19)] for _ in range(2))
    (reference,) = alone([second])
    engine = served(n_blocks=1 + 12, max_num_seqs=1, depth=depth)
    a = engine.add(first, 10)
    d = engine.add(second, 24, sampling=sampling_of(0))
    while a.terminal is None:
        engine.step()
    last_of_a = len(engine.plans) - 1
    engine.run()
    blocks_of_a, blocks_of_d = blocks_until(engine, 0, last_of_a), blocks_until(engine, last_of_a + 1, None)
    assert engine.plans[last_of_a + 1].add, "D did not start in the step after A's last one"
    assert len(blocks_of_a & blocks_of_d) >= 5
    assert n_close_calls([d], [reference]) == 0


def blocks_until(engine: ServedScheduler, start: int, last: int | None) -> set[int]:
    """The blocks handed out in the plans from ``start`` to ``last``."""
    chosen = engine.plans[start : None if last is None else last + 1]
    return {int(block) for plan in chosen for _, blocks in plan.append for block in blocks}


@pytest.mark.parametrize("depth", [1, 2])
def test_32_equal_prompts_at_once_prefill_their_prefix_once(depth: int) -> None:
    rng = Random(2)
    prompt = [rng.randrange(VOCAB_SIZE) for _ in range(61)]
    engine = served(depth=depth)
    requests = [engine.add(prompt, 1) for _ in range(N_REQUESTS)]
    engine.run()
    assert engine.n_computed() == 61 + 31 * 1
    assert [request.finished.n_cached for request in requests] == [0] + [60] * 31
    assert len({tuple(request.ids) for request in requests}) == 1


def test_turn_5_of_a_conversation_computes_only_its_new_turn() -> None:
    rng = Random(3)
    engine = served()
    history: list[int] = []
    for turn in range(1, 6):
        question = [rng.randrange(VOCAB_SIZE) for _ in range(7)]
        n_before = engine.n_computed()
        request = engine.add([*history, *question], 9)
        engine.run()
        n_reused = max(0, len(history) - 1) // BLOCK_SIZE * BLOCK_SIZE
        assert request.finished.n_cached == n_reused
        n_computed = engine.n_computed() - n_before
        assert n_computed == len(history) - n_reused + 7 + 8
        assert n_computed <= 7 + 8 + BLOCK_SIZE, f"turn {turn} computed {n_computed} tokens"
        history += [*question, *request.ids]
