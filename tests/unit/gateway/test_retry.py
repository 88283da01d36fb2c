import random

import pytest

from tribar.core.errors import DeadlineExceeded, Internal, InvalidRequest, Overloaded, Unavailable, Unsupported
from tribar.gateway.retry import RetryBudget, may_succeed_elsewhere


@pytest.mark.parametrize("seed", range(5))
def test_retries_stay_a_share_of_the_requests(seed: int) -> None:
    draw, budget = random.Random(seed), RetryBudget(0.2, burst=10)
    n_requests = n_retries = 0
    for _ in range(5000):
        if draw.random() < 0.5:
            budget.deposit()
            n_requests += 1
        else:
            n_retries += budget.withdraw()
        assert n_retries <= 10 + 0.2 * n_requests
        assert 0 <= budget.balance <= 10
    assert n_retries > 0.19 * n_requests


def test_no_share_is_no_retry() -> None:
    budget = RetryBudget(0)
    budget.deposit()
    assert not budget.withdraw()


def test_only_an_upstreams_fault_is_tried_elsewhere() -> None:
    assert all(may_succeed_elsewhere(kind("x")) for kind in (Unavailable, Overloaded, Internal))
    assert not any(may_succeed_elsewhere(kind("x")) for kind in (InvalidRequest, Unsupported, DeadlineExceeded))
