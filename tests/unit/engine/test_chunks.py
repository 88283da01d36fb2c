"""The chunk budget: running streams keep their pace while a very long prompt comes in."""

from itertools import pairwise
from random import Random

import pytest
from tests.unit.engine.virtual_engine import Cost, Course, VirtualEngine, percentile

from tribar.engine.chunks import MIN_PREFILL, ChunkBudget
from tribar.engine.config import SchedulerConfig
from tribar.engine.pace import Pace, StepLoad
from tribar.engine.step import Step

TARGET_S = 0.05


def intrusion(target_s: float | None, n_prompt: int, seed: int, cost: Cost) -> tuple[list[Course], Course, float]:
    """8 streams, then a long prompt; runs until its first token. The streams, the intruder, when it came."""
    config = SchedulerConfig(
        max_num_seqs=16, max_num_batched_tokens=512, max_model_len=65_536, tpot_target_s=target_s
    )  # fmt: skip
    engine = VirtualEngine(config, cost, seed)
    streams = [engine.add(i, 100, 60_000) for i in range(8)]
    while engine.now_s < 3:
        engine.step()
    intruder = engine.add(100, n_prompt, 4)
    while not intruder.token_s:
        engine.step()
    return streams, intruder, intruder.arrived_s


def gaps(streams: list[Course], since_s: float) -> list[float]:
    """Times between tokens that end after ``since_s``."""
    times = [stream.token_s for stream in streams]
    return [b - a for token_s in times for a, b in pairwise(token_s) if b > since_s]


@pytest.mark.parametrize("seed", range(3))
def test_streams_keep_their_target_while_50_000_tokens_come_in(seed: int) -> None:
    streams, intruder, since_s = intrusion(TARGET_S, 50_000, seed, Cost())
    assert percentile(gaps(streams, since_s), 99) <= 1.3 * TARGET_S
    _, unbounded, _ = intrusion(None, 50_000, seed, Cost())
    assert intruder.ttft_s < 2 * unbounded.ttft_s


def test_without_a_target_they_stop_for_seconds() -> None:
    streams, _, since_s = intrusion(None, 50_000, 0, Cost())
    assert percentile(gaps(streams, since_s), 99) > 20 * TARGET_S


@pytest.mark.parametrize("cost", [Cost(outliers=0.005), Cost(token=2e-4, row=1e-3), Cost(step=1e-2, token=2e-3)])
def test_other_machines_and_a_noisy_one(cost: Cost) -> None:
    """Outliers are not the budget's doing, so the 97th percentile is looked at."""
    streams, _, since_s = intrusion(TARGET_S, 7_500, 1, cost)
    assert percentile(gaps(streams, since_s), 97) <= 1.3 * TARGET_S


def test_where_decodes_alone_take_longer_prefill_still_gets_on() -> None:
    streams, intruder, since_s = intrusion(TARGET_S, 500, 0, Cost(row=0.01))
    assert percentile(gaps(streams, since_s), 50) > TARGET_S
    n_steps = sum(since_s < at <= intruder.token_s[0] for at in streams[0].token_s)
    assert 500 / 64 <= n_steps <= 500 / MIN_PREFILL + 2


def test_nothing_decodes_so_a_prompt_has_the_whole_step() -> None:
    config = SchedulerConfig(max_num_batched_tokens=512, tpot_target_s=TARGET_S)
    engine = VirtualEngine(config, Cost())
    engine.add(0, 2000, 1)
    engine.run()
    assert engine.n_steps == 4


def budget(n_decodes: int, n_tokens: int, target_s: float | None) -> ChunkBudget:
    step = Step(0, n_tokens, 0.0)
    step.n_decodes = n_decodes
    return ChunkBudget(step, Pace(), target_s)


def test_the_minimum_is_a_block_in_all_prompts_together() -> None:
    chunks = budget(n_decodes=1000, n_tokens=512, target_s=TARGET_S)
    assert [chunks.take(0, 10), chunks.take(0, 10)] == [10, 6]
    assert chunks.is_spent


def test_deep_in_a_context_the_minimum_is_what_a_share_of_the_target_holds() -> None:
    chunks = budget(n_decodes=1000, n_tokens=512, target_s=TARGET_S)
    assert 1 <= chunks.take(10**6, 1000) < MIN_PREFILL


@pytest.mark.parametrize("seed", range(20))
def test_never_more_than_the_tokens_and_the_time(seed: int) -> None:
    """Oracle: the pace's own sum over all chunks, the minimum aside."""
    rng = Random(seed)
    n_tokens, n_decodes = rng.randint(1, 600), rng.randint(1, 20)
    step = Step(0, n_tokens, 0.0)
    step.n_decodes = n_decodes
    pace = Pace()
    chunks = ChunkBudget(step, pace, TARGET_S)
    before, n = 0.0, 0
    seconds, total = pace.step_s(StepLoad(n_decodes)), 0
    while not chunks.is_spent:
        position, n_missing = rng.randint(0, 2000), rng.randint(1, 100)
        n = chunks.take(position, n_missing)
        assert 1 <= n <= n_missing
        step.budget -= n
        total += n
        before, seconds = seconds, seconds + pace.prefill_s(n, n * (position + n / 2))
    assert total <= n_tokens
    assert seconds <= TARGET_S or total <= MIN_PREFILL or (n == 1 and before <= TARGET_S)
