"""The estimated time to first token, against what then happens on a virtual clock of known costs."""

from random import Random

import pytest
from tests.unit.engine.virtual_engine import Cost, Course, VirtualEngine, percentile

from tribar.core.requests import AbortReason
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


def answer_s(engine: VirtualEngine) -> float:
    """Seconds that an unlimited answer is expected to take."""
    outlook = engine.scheduler._forecast.of(10, 10_000, "someone", 0)
    assert outlook is not None
    return outlook.end_s - outlook.ttft_s


def warm_engine() -> VirtualEngine:
    engine = VirtualEngine(CONFIG, Cost())
    for i in range(20):
        engine.add(i, 50, 60)
        engine.run()
    return engine


@pytest.mark.parametrize("max_tokens", [0, 1, 30])
def test_answers_cut_short_by_their_limit_do_not_make_others_look_short(max_tokens: int) -> None:
    """However many prompts are scored: whoever asks for an answer after that wants a whole one."""
    engine = warm_engine()
    before_s = answer_s(engine)
    for i in range(300):
        engine.add(1000 + i, 20, max_tokens)
        engine.run()
    assert answer_s(engine) == pytest.approx(before_s, rel=0.1)


def test_nor_do_those_that_their_client_gave_up() -> None:
    engine = warm_engine()
    before_s = answer_s(engine)
    for i in range(300):
        course = engine.add(1000 + i, 20, 100)
        engine.step()
        engine.scheduler.abort(course.submit.uid, AbortReason.CLIENT_GONE, 0, engine.now_s)
    assert answer_s(engine) == pytest.approx(before_s, rel=0.1)


@pytest.mark.parametrize("is_stop_string", [True, False])
def test_answers_that_end_by_themselves_early_do(is_stop_string: bool) -> None:
    engine = warm_engine()
    before_s = answer_s(engine)
    for i in range(300):
        course = engine.add(1000 + i, 20, 100, stop_ids=() if is_stop_string else (7,))
        engine.step()
        if is_stop_string:
            engine.scheduler.abort(course.submit.uid, AbortReason.STOP_STRING, 1, engine.now_s)
    assert answer_s(engine) < 0.1 * before_s


def test_long_answers_count_even_if_cut() -> None:
    engine = warm_engine()
    before_s = answer_s(engine)
    for i in range(64):
        engine.add(1000 + i, 20, 1000)
    engine.run()
    assert answer_s(engine) > 3 * before_s
