"""Who is refused at the door, with what, and whether coming back as told succeeds (law 12)."""

import dataclasses
import re
from random import Random

import pytest
from tests.unit.engine.driving import make_submit
from tests.unit.engine.virtual_engine import Cost, Course, VirtualEngine

from tribar.core.errors import Overloaded, RateLimited
from tribar.engine.config import SchedulerConfig

CONFIG = SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=512, tpot_target_s=0.05)


def warm_engine(**limits: object) -> VirtualEngine:
    engine = VirtualEngine(dataclasses.replace(CONFIG, **limits), Cost())  # type: ignore[arg-type]
    for i in range(20):
        engine.add(100_000 + i, 50, 60)
        engine.run()
    return engine


def flood(engine: VirtualEngine, n: int, n_prompt: int = 200, **fields: object) -> list[Course]:
    first = len(engine.courses)
    return [engine.add(first + i, n_prompt, 60, **fields) for i in range(n)]


def refusals(courses: list[Course]) -> list[type[Exception] | None]:
    return [None if course.error is None else type(course.error) for course in courses]


def test_tokens_bound_the_queue_as_requests_do() -> None:
    engine = warm_engine(max_waiting_tokens=1000)
    courses = flood(engine, 7)
    assert refusals(courses) == [None] * 5 + [Overloaded] * 2
    assert "1000 prompt tokens are waiting" in str(courses[-1].error)
    assert engine.scheduler.stats().refused["max_waiting_tokens"] == 2
    assert engine.scheduler.stats().n_waiting_tokens == 1000


def test_an_empty_queue_takes_any_prompt() -> None:
    engine = warm_engine(max_waiting_tokens=100)
    assert refusals(flood(engine, 2, n_prompt=5000)) == [None, Overloaded]
    engine.run()


@pytest.mark.parametrize("limit", [{"max_waiting": 12}, {"max_waiting_tokens": 2400}])
def test_a_full_queue_of_one_tenant_takes_another_up_to_its_share(limit: dict[str, int]) -> None:
    engine = warm_engine(**limit)
    of_a, of_b, more_of_a = flood(engine, 13, tenant="a"), flood(engine, 8, tenant="b"), flood(engine, 1, tenant="a")
    assert refusals(of_a) == [None] * 12 + [Overloaded]
    assert refusals(of_b) == [None] * 6 + [RateLimited] * 2
    assert refusals(more_of_a) == [RateLimited]
    assert refusals(flood(engine, 5, tenant="c")) == [None] * 4 + [RateLimited]
    assert engine.scheduler.stats().refused["tenant_share"] == 4
    engine.run()


def test_the_queue_has_an_end_however_many_tenants_there_are() -> None:
    engine = warm_engine(max_waiting=20)
    for i in range(100):
        flood(engine, 20, tenant=f"t{i}")
        assert engine.scheduler.stats().n_waiting <= 40
    engine.run()


def test_a_first_token_that_would_come_too_late_is_refused_with_the_numbers() -> None:
    engine = warm_engine(max_ttft_s=3.0)
    courses = flood(engine, 100)
    n_accepted = refusals(courses).index(Overloaded)
    assert set(refusals(courses[n_accepted:])) == {Overloaded}
    assert "more than the 3.00 s allowed" in str(courses[-1].error)
    engine.run()
    assert all(course.ttft_s < 1.3 * 3.0 for course in courses[:n_accepted])
    assert max(course.ttft_s for course in courses[:n_accepted]) > 0.7 * 3.0


def test_a_prompt_that_takes_long_by_itself_is_served_when_nothing_is_ahead() -> None:
    engine = warm_engine(max_ttft_s=1.0)
    assert refusals(flood(engine, 1, n_prompt=5000)) == [None]
    assert refusals(flood(engine, 1, n_prompt=5000)) == [Overloaded]
    engine.run()
    assert refusals(flood(engine, 1, n_prompt=5000)) == [None]


def test_a_deadline_that_cannot_be_met_is_refused_and_one_that_can_is_met() -> None:
    engine = warm_engine()
    flood(engine, 60)
    hopeless, fine = engine.add(1000, 100, 60, deadline_s=1.0), engine.add(1001, 100, 60, deadline_s=60.0)
    assert refusals([hopeless, fine]) == [Overloaded, None]
    assert "deadline is 1.00 s" in str(hopeless.error)
    assert engine.scheduler.stats().refused["deadline"] == 1
    engine.run()
    assert fine.token_s[-1] - fine.arrived_s < 60


def test_times_below_a_second_are_told_in_milliseconds() -> None:
    engine = warm_engine(max_ttft_s=0.001)
    hopeless = engine.add(1000, 10, 1, deadline_s=0.0001)
    flood(engine, 1)
    late = engine.add(1001, 10, 1)
    told = [re.search(r"about (\S+) ms, .* (?:0\.1|1) ms", str(course.error)) for course in (hopeless, late)]
    assert all(match is not None and 1 < float(match[1]) < 1000 for match in told), [hopeless.error, late.error]


def test_deadline_has_precedence_over_the_general_bound() -> None:
    engine = warm_engine(max_ttft_s=1.0)
    flood(engine, 60)
    assert refusals([engine.add(1000, 100, 60), engine.add(1001, 100, 60, deadline_s=100.0)]) == [Overloaded, None]


@pytest.mark.parametrize("limit", [{"max_waiting": 30}, {"max_waiting_tokens": 6000}, {"max_ttft_s": 3.0}])
def test_who_comes_back_as_told_gets_in(limit: dict[str, int]) -> None:
    """Retry-After is honest: after it (and no one else came), the same request is accepted; long before, it is not."""
    engine = warm_engine(**limit)
    refused = flood(engine, 60)[-1]
    assert refused.error is not None
    retry_s = refused.error.retry_after_s
    assert retry_s is not None
    assert 1 <= retry_s < 10
    engine.run(until_s=engine.now_s + retry_s)
    assert refusals(flood(engine, 1)) == [None]


def test_a_cold_engine_refuses_nobody_for_time() -> None:
    engine = VirtualEngine(dataclasses.replace(CONFIG, max_ttft_s=0.001), Cost())
    assert set(refusals(flood(engine, 100))) == {None}


def test_three_times_the_load_leaves_the_admitted_calm() -> None:
    """Goodput stays, the queue stays short: with the bound the admitted wait a few seconds, without it for minutes."""
    ttft_s, goodput = {}, {}
    for bound in (3.0, None):
        rng, engine = Random(0), warm_engine(max_ttft_s=bound)
        at_s, arrivals = engine.now_s, []
        for number in range(900):
            at_s += rng.expovariate(3 / 0.21)
            arrivals.append((at_s, {"number": number, "n_prompt": 200, "max_tokens": rng.randint(20, 100)}))
        start_s = engine.now_s
        engine.run(arrivals)
        courses = [engine.courses[make_submit(number, [1]).uid] for number in range(900)]
        in_time = [course for course in courses if course.error is None and course.token_s[0] <= at_s]
        ttft_s[bound] = max(course.ttft_s for course in courses if course.error is None)
        goodput[bound] = len(in_time) / (at_s - start_s)
    assert ttft_s[3.0] < 4.5
    assert ttft_s[None] > 60
    assert goodput[3.0] > 0.95 * goodput[None]
