import random
from dataclasses import replace

import pytest

from tribar.gateway.breaker import Breaker, BreakerPolicy, BreakerState, Permit

POLICY = BreakerPolicy(
    window_s=10, min_requests=4, max_failures=3, slow_ttft_s=5, max_slow_share=0.5, first_pause_s=1, max_pause_s=8
)


def begun(breaker: Breaker, now_s: float) -> Permit:
    permit = breaker.begin(now_s)
    assert permit is not None
    return permit


def fail(breaker: Breaker, now_s: float, n: int = 1) -> None:
    for _ in range(n):
        breaker.fail(begun(breaker, now_s), now_s)


def succeed(breaker: Breaker, now_s: float, ttft_s: float = 0.1) -> None:
    permit = begun(breaker, now_s)
    breaker.first_token(permit, now_s, ttft_s)
    breaker.succeed(permit, now_s)


def test_failures_in_a_row_open_it_and_one_probe_closes_it() -> None:
    breaker = Breaker(replace(POLICY, min_requests=100))
    fail(breaker, 0, 2)
    succeed(breaker, 0)
    fail(breaker, 0, 2)
    assert breaker.state(0) is BreakerState.CLOSED
    fail(breaker, 0)
    assert breaker.state(0) is BreakerState.OPEN
    succeed(breaker, 1)
    assert breaker.state(1) is BreakerState.CLOSED


def test_open_lets_nothing_through_until_its_pause_is_over() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 0, 3)
    assert breaker.state(0.99) is BreakerState.OPEN
    assert breaker.begin(0.99) is None
    assert breaker.retry_after_s(0.25) == 0.75
    assert breaker.state(1.0) is BreakerState.HALF_OPEN


def test_exactly_one_probe() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 0, 3)
    probe = begun(breaker, 1)
    assert probe.is_probe
    assert [breaker.begin(1) for _ in range(5)] == [None] * 5
    breaker.first_token(probe, 2, 0.5)
    assert breaker.state(2) is BreakerState.CLOSED
    assert not begun(breaker, 2).is_probe


def test_the_pause_doubles_up_to_its_limit_and_is_forgotten_after_a_good_window() -> None:
    breaker, now_s = Breaker(POLICY), 0.0
    fail(breaker, now_s, 3)
    for pause_s in (1, 2, 4, 8, 8):
        assert breaker.retry_after_s(now_s) == pause_s
        now_s += pause_s
        fail(breaker, now_s)
    now_s += 8
    succeed(breaker, now_s)
    fail(breaker, now_s + 5, 3)
    assert breaker.retry_after_s(now_s + 5) == 8, "it was closed for half a window only"
    now_s += 13
    succeed(breaker, now_s)
    fail(breaker, now_s + 11, 3)
    assert breaker.retry_after_s(now_s + 11) == 1


def test_a_share_of_failures_opens_it() -> None:
    breaker = Breaker(POLICY)
    for i in range(3):
        succeed(breaker, i)
        fail(breaker, i)
        if breaker.state(i) is not BreakerState.CLOSED:
            break
    assert breaker.state(i) is BreakerState.OPEN
    assert i == 1, "two of four"


def test_what_is_old_is_forgotten() -> None:
    breaker = Breaker(POLICY)
    succeed(breaker, 0)
    fail(breaker, 0, 2)
    assert breaker.counts(9).n_failed == 2
    assert breaker.counts(10.5).n_ended == 0


def test_late_first_tokens_open_it() -> None:
    breaker = Breaker(POLICY)
    for ttft_s in (0.1, 6, 6):
        succeed(breaker, 0, ttft_s)
    assert breaker.state(0) is BreakerState.CLOSED
    succeed(breaker, 0, 6)
    assert breaker.state(0) is BreakerState.OPEN


def test_a_callers_fault_never_counts() -> None:
    breaker = Breaker(POLICY)
    for _ in range(100):
        breaker.refuse(begun(breaker, 0), 0)
        breaker.give_up(begun(breaker, 0), 0, waited_s=4.9)
    assert breaker.state(0) is BreakerState.CLOSED
    assert breaker.counts(0).n_failed == 0


def test_callers_who_lose_patience_with_a_silent_upstream_count_as_late_first_tokens() -> None:
    breaker = Breaker(POLICY)
    for _ in range(4):
        breaker.give_up(begun(breaker, 0), 0, waited_s=5)
    assert breaker.state(0) is BreakerState.OPEN


def test_a_probe_whose_caller_leaves_makes_way_for_another_one() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 0, 3)
    breaker.give_up(begun(breaker, 1), 1, waited_s=0.1)
    assert begun(breaker, 1).is_probe
    breaker.give_up(Permit(99, True), 1, 0)  # of no epoch that was
    assert breaker.begin(1) is None


def test_a_refused_probe_shows_that_the_upstream_works() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 0, 3)
    breaker.refuse(begun(breaker, 1), 1)
    assert breaker.state(1) is BreakerState.CLOSED


def test_requests_from_before_it_opened_change_nothing() -> None:
    breaker = Breaker(POLICY)
    old = [begun(breaker, 0) for _ in range(10)]
    fail(breaker, 0, 3)
    for permit in old[:5]:
        breaker.fail(permit, 0.5)
    assert breaker.retry_after_s(0.5) == 0.5
    succeed(breaker, 1)
    for permit in old[5:]:
        breaker.fail(permit, 1)
    assert breaker.state(1) is BreakerState.CLOSED


def test_a_probe_that_dies_after_its_first_token_counts_like_any_other() -> None:
    breaker = Breaker(POLICY)
    fail(breaker, 0, 3)
    probe = begun(breaker, 1)
    breaker.first_token(probe, 1, 0.1)
    breaker.fail(probe, 1)
    assert breaker.counts(1).n_failed == 1
    assert breaker.state(1) is BreakerState.CLOSED


def test_an_upstream_that_is_seen_again_is_tried_at_once() -> None:
    breaker = Breaker(POLICY)
    breaker.half_open(0)
    assert breaker.state(0) is BreakerState.CLOSED
    breaker.open(0)
    breaker.half_open(0.1)
    assert begun(breaker, 0.1).is_probe


@pytest.mark.parametrize("seed", range(30))
def test_random_histories_keep_their_word(seed: int) -> None:
    """At most one probe at a time, nothing through while open, and it can always recover."""
    draw, breaker, now_s = random.Random(seed), Breaker(POLICY), 0.0
    running: list[Permit] = []
    for _ in range(500):
        now_s += draw.choice([0, 0, 0.1, 1, 3])
        breaker.check()
        state = breaker.state(now_s)
        permit = breaker.begin(now_s)
        assert permit is None or state is not BreakerState.OPEN
        assert permit is None or permit.is_probe == (state is BreakerState.HALF_OPEN)
        if permit is not None:
            running.append(permit)
        probes = [one for one in running if one.is_probe and one.epoch == breaker._epoch]
        assert len(probes) <= 1 or breaker.state(now_s) is BreakerState.CLOSED
        if running and draw.random() < 0.6:
            one = running.pop(draw.randrange(len(running)))
            match draw.randrange(5):
                case 0:
                    breaker.fail(one, now_s)
                case 1:
                    breaker.give_up(one, now_s, draw.choice([0.1, 9]))
                case 2:
                    breaker.refuse(one, now_s)
                case _:
                    breaker.first_token(one, now_s, draw.choice([0.1, 9]))
                    breaker.succeed(one, now_s)
    for one in running:
        breaker.give_up(one, now_s, 0)
    now_s += POLICY.max_pause_s
    succeed(breaker, now_s)
    assert breaker.state(now_s) is BreakerState.CLOSED
