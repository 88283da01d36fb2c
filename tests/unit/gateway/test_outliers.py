from tribar.gateway.outliers import EjectionPolicy, outliers
from tribar.gateway.window import Counts

POLICY = EjectionPolicy(min_requests=10, slow_factor=3, slow_margin_s=0.1, error_margin=0.2, max_share=0.5)


def counts(ttft_s: float = 0.1, errors: int = 0, n: int = 20) -> Counts:
    return Counts(n_ended=n, n_failed=errors, n_first=n, ttft_sum_s=n * ttft_s)


def test_the_slow_and_the_failing_one_among_good_ones() -> None:
    assert outliers({"a": counts(), "b": counts(), "c": counts(0.5)}, 0, POLICY) == ["c"]
    assert outliers({"a": counts(), "b": counts(errors=6), "c": counts()}, 0, POLICY) == ["b"]


def test_nobody_is_an_outlier_among_equals_or_alone() -> None:
    assert outliers({"a": counts(2.0), "b": counts(2.1), "c": counts(1.9)}, 0, POLICY) == []
    assert outliers({"a": counts(9.0, errors=20)}, 0, POLICY) == []
    assert outliers({}, 0, POLICY) == []


def test_small_differences_of_fast_upstreams_do_not_count() -> None:
    assert outliers({"a": counts(0.005), "b": counts(0.05), "c": counts(0.005)}, 0, POLICY) == []


def test_few_requests_prove_nothing() -> None:
    assert outliers({"a": counts(), "b": counts(9.0, n=5)}, 0, POLICY) == []
    assert outliers({"a": counts(n=5), "b": counts(9.0)}, 0, POLICY) == []


def test_never_more_than_the_share_of_the_group() -> None:
    group = {"a": counts(), "b": counts(), "c": counts(), "d": counts(), "e": counts(1.0), "f": counts(2.0)}
    assert outliers(group, 0, POLICY) == ["f", "e"]
    assert outliers(group, 3, POLICY) == ["f"], "4 of 9"
    assert outliers(group, 6, POLICY) == []
    assert outliers({"a": counts(), "b": counts(1.0)}, 0, POLICY) == ["b"]
    assert outliers({"a": counts(), "b": counts(1.0)}, 1, POLICY) == []
