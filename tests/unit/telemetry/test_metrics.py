"""Engine metrics: gauges that return to zero, counters that survive restarts, one count per request."""

from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tribar.core.errors import ERRORS_BY_NAME
from tribar.core.requests import AbortReason, FinishReason, Timing, Usage
from tribar.telemetry.metrics import EngineFamilies, EngineMetrics, metrics_text
from tribar.wire.messages import Stats


@dataclass(frozen=True)
class Report:
    reason: str
    usage: Usage = Usage()
    timing: Timing = Timing()
    e2e_s: float = 1.0
    ttft_s: float | None = None


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> EngineMetrics:
    return EngineMetrics(EngineFamilies(registry), "tiny")


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(f"tribar_{name}", {"model": "tiny", **labels})


def test_gauges_follow_the_snapshots(registry: CollectorRegistry, metrics: EngineMetrics) -> None:
    busy = Stats(
        n_running=3,
        n_waiting=2,
        n_blocks=8,
        n_blocks_used=4,
        n_blocks_cached=1,
        kv_slots_used=48,
        kv_slots_allocated=64,
        n_waiting_tokens=700,
        ttft_estimate_s=1.5,
        prefill_budget=48,
    )
    metrics.on_stats(busy)
    names = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio", "kv_cache_reusable_ratio"]
    assert [value(registry, name) for name in names] == [3, 2, 0.5, 0.125]
    assert value(registry, "kv_slots_used_ratio") == 0.75
    new = ["num_tokens_waiting", "time_to_first_token_estimate_seconds", "prefill_budget_tokens"]
    assert [value(registry, name) for name in new] == [700, 1.5, 48]
    metrics.on_stats(Stats(n_blocks=8))
    assert [value(registry, name) for name in [*names, "kv_slots_used_ratio"]] == [0] * 5


def test_refusals_are_counted_by_reason_across_restarts(registry: CollectorRegistry, metrics: EngineMetrics) -> None:
    for refused in ({"deadline": 2}, {"deadline": 3, "max_ttft": 1}, {"deadline": 1, "max_ttft": 0}):
        metrics.on_stats(Stats(refused=refused))
    metrics.on_disconnect()
    metrics.on_stats(Stats(refused={"max_ttft": 5}))
    counts = {name: value(registry, "request_refused_total", reason=name) for name in ("deadline", "max_ttft")}
    assert counts == {"deadline": 4, "max_ttft": 6}


def test_gauges_return_to_zero_when_the_engine_dies(registry: CollectorRegistry, metrics: EngineMetrics) -> None:
    """BUG-036: without a new request."""
    metrics.on_stats(Stats(n_running=3, n_waiting=2, n_blocks=8, n_blocks_used=4))
    metrics.on_disconnect()
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio"):
        assert value(registry, name) == 0


def test_series_exist_before_the_first_snapshot(registry: CollectorRegistry, metrics: EngineMetrics) -> None:
    assert value(registry, "num_requests_running") == 0
    assert value(registry, "generation_tokens_total") == 0
    assert value(registry, "e2e_request_latency_seconds_count") == 0


def test_counters_add_up_over_snapshots(registry: CollectorRegistry, metrics: EngineMetrics) -> None:
    for n in (1, 4, 4, 9):
        metrics.on_stats(
            Stats(
                n_steps=n, n_prompt_tokens=10 * n, n_output_tokens=2 * n, n_prefix_queried=8 * n, n_prefix_hit=3 * n,
                n_preemptions=n // 4, step_s=n / 2, runner_s=n / 4,
            )
        )  # fmt: skip
    names = ["engine_steps", "prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits"]
    assert [value(registry, f"{name}_total") for name in names] == [9, 90, 18, 72, 27]
    names = ["num_preemptions", "engine_step_seconds", "engine_runner_seconds"]
    assert [value(registry, f"{name}_total") for name in names] == [2, 4.5, 2.25]


def test_counters_survive_a_restart_that_was_noticed(registry: CollectorRegistry, metrics: EngineMetrics) -> None:
    metrics.on_stats(Stats(n_output_tokens=10))
    metrics.on_disconnect()
    metrics.on_stats(Stats(n_output_tokens=15))
    assert value(registry, "generation_tokens_total") == 25


def test_counters_survive_a_restart_that_was_not_noticed(registry: CollectorRegistry, metrics: EngineMetrics) -> None:
    """One counter that went back shows that all of them began again, larger ones too."""
    metrics.on_stats(Stats(n_steps=10, n_prompt_tokens=10))
    metrics.on_stats(Stats(n_steps=3, n_prompt_tokens=40))
    assert value(registry, "engine_steps_total") == 13
    assert value(registry, "prompt_tokens_total") == 50


def test_every_end_is_counted_once_by_reason(registry: CollectorRegistry, metrics: EngineMetrics) -> None:
    """BUG-036: aborted and failed requests count too, and the histogram's count is the number of ended requests."""
    reasons = [*FinishReason, *AbortReason, *ERRORS_BY_NAME]
    for reason in reasons:
        metrics.on_finish(Report(str(reason)))
    assert {value(registry, "request_finished_total", finished_reason=str(reason)) for reason in reasons} == {1}
    assert value(registry, "e2e_request_latency_seconds_count") == len(reasons)
    assert value(registry, "time_to_first_token_seconds_count") == 0
    assert value(registry, "time_per_output_token_seconds_count") == 0


def test_times_of_a_request(registry: CollectorRegistry, metrics: EngineMetrics) -> None:
    metrics.on_first_token(0.5)
    report = Report("stop", Usage(10, 5), Timing(queue_s=0.1, prefill_s=0.4, decode_s=2), e2e_s=2.5, ttft_s=0.5)
    metrics.on_finish(report)
    sums = {
        "time_to_first_token": 0.5, "time_per_output_token": 0.5, "e2e_request_latency": 2.5,
        "request_queue_time": 0.1, "request_prefill_time": 0.4, "request_decode_time": 2,
    }  # fmt: skip
    for name, seconds in sums.items():
        assert value(registry, f"{name}_seconds_sum") == seconds
        assert value(registry, f"{name}_seconds_count") == 1


def test_one_token_has_no_time_between_tokens(registry: CollectorRegistry, metrics: EngineMetrics) -> None:
    metrics.on_finish(Report("length", Usage(10, 1), ttft_s=0.5))
    assert value(registry, "time_per_output_token_seconds_count") == 0


def test_models_share_families_and_nothing_else(registry: CollectorRegistry) -> None:
    families = EngineFamilies(registry)
    first, second = EngineMetrics(families, "tiny"), EngineMetrics(families, 'o"dd\n')
    first.on_stats(Stats(n_running=1))
    second.on_stats(Stats(n_running=2))
    parsed = {family.name: family for family in text_string_to_metric_families(metrics_text(registry).decode())}
    running = {s.labels["model"]: s.value for s in parsed["tribar_num_requests_running"].samples}
    assert running == {"tiny": 1, 'o"dd\n': 2}
    assert all(family.documentation for family in parsed.values())
