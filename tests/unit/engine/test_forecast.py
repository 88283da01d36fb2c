"""The estimated time to first token, against what then happens on a virtual clock of known costs."""

from random import Random

import pytest
from tests.unit.engine.virtual_engine import Cost, Course, VirtualEngine, percentile

from tribar.engine.config import SchedulerConfig

CONFIG = SchedulerConfig(max_num_seqs=16, max_num_batched_tokens=512, tpot_target_s=0.05)
SECONDS_PER_REQUEST = 0.2
"""Of the machine, for the requests below: 1 / capacity."""


def served(load: float, seed: int, n_requests: int = 150) -> list[Course]:
    """Random arrivals at ``load`` times the capacity; those of the warm engine."""
    rng = Random(seed)
    engine = VirtualEngine(CONFIG, Cost(outliers=0.002), seed)
    now_s, arrivals = 0.0, []
    for number in range(n_requests):
        now_s += rng.expovariate(load / SECONDS_PER_REQUEST)
        n_output = min(1 + int(rng.expovariate(1 / 100)), 2000)
        arrivals.append((now_s, {"number": number, "n_prompt": rng.randint(20, 380), "max_tokens": n_output}))
    engine.run(arrivals)
    return [course for course in engine.courses.values() if course.estimate_s is not None][60:]


@pytest.mark.parametrize("load", [0.3, 0.8, 2.0])
def test_estimates_are_close_to_what_happens(load: float) -> None:
    """Bounds: half of them are within 15 % or 20 ms, 90 % within 35 % or 50 ms; the answers' lengths are not known."""
    errors = []
    for seed in range(2):
        for course in served(load, seed):
            assert course.estimate_s is not None
            errors.append(abs(course.estimate_s - course.ttft_s) / max(course.ttft_s, 0.14))
    assert percentile(errors, 50) < 0.15
    assert percentile(errors, 90) < 0.35


def test_a_cold_engine_does_not_guess() -> None:
    engine = VirtualEngine(CONFIG, Cost())
    assert engine.add(0, 100, 4).estimate_s is None
    assert engine.scheduler.stats().ttft_estimate_s == 0.0


def test_another_tenants_flood_is_not_ahead_of_a_newcomer() -> None:
    engine = VirtualEngine(CONFIG, Cost())
    for i in range(200):
        engine.add(i, 200, 100, tenant="flood")
    engine.run(until_s=5)
    of_flood, of_other = engine.add(1000, 200, 100, tenant="flood"), engine.add(1001, 200, 100, tenant="other")
    assert of_flood.estimate_s is not None
    assert of_other.estimate_s is not None
    assert of_other.estimate_s < 0.5
    assert of_flood.estimate_s > 20
    engine.run()
    assert of_other.estimate_s == pytest.approx(of_other.ttft_s, rel=0.4)
    assert of_flood.estimate_s == pytest.approx(of_flood.ttft_s, rel=0.25)


def test_cached_prompts_are_expected_to_be_cached() -> None:
    """100 times the same prompt: what is computed of it lately is what counts."""
    engine = VirtualEngine(CONFIG, Cost())
    prompt = [1] * 1600
    for i in range(100):
        engine.add_prompt(i, prompt, 2)
        engine.run()
    last = engine.add_prompt(1000, prompt, 2)
    engine.run()
    assert last.estimate_s is not None
    assert last.estimate_s < 0.5 * 1600 * Cost().token


def test_those_who_want_little_are_not_expected_to_stay() -> None:
    """However long answers were so far: what ``max_tokens`` allows bounds what is expected of those in the queue."""
    engine = VirtualEngine(CONFIG, Cost())
    for i in range(1000):
        engine.add(i, 20, 3)
    engine.run(until_s=2.0)
    last = engine.add(2000, 20, 3)
    engine.run()
    assert last.estimate_s is not None
    assert last.estimate_s == pytest.approx(last.ttft_s, rel=0.3)
