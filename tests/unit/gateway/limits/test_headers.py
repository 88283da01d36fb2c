import pytest

from tribar.core.limits import Level
from tribar.gateway.limits.headers import duration, rate_limit_headers
from tribar.gateway.limits.rules import Allowance, Rule, RuleBook, Subject


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (-3, "0s"),
        (0.0001, "1ms"),
        (0.017, "17ms"),
        (0.9999, "1s"),
        (1, "1s"),
        (1.0001, "2s"),
        (59.5, "1m0s"),
        (360, "6m0s"),
        (86399, "23h59m59s"),
        (86400, "24h0m0s"),
    ],
)
def test_durations_as_openai_writes_them_and_never_too_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_the_limit_with_the_least_left_is_told_and_nothing_is_negative() -> None:
    """BUG-081: ``x-ratelimit-*`` are never negative."""
    allowance = Allowance(requests_per_minute=3, requests_per_day=10, tokens_per_minute=100, concurrent_requests=1)
    limits = RuleBook([Rule(allowance=allowance)]).limits_of(Subject())
    levels = [Level(2, 20, 0), Level(1, 3600, 0), Level(0, 0, 0), Level(-40, 84.2, 0)]
    assert dict(rate_limit_headers(limits, levels)) == {
        "x-ratelimit-limit-requests": "10",
        "x-ratelimit-remaining-requests": "1",
        "x-ratelimit-reset-requests": "1h0m0s",
        "x-ratelimit-limit-tokens": "100",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m25s",
    }
