"""The watchdog beside real blocks: a call that sleeps, one that computes, and a loop that is only busy."""

import asyncio
import threading
import time
from collections.abc import Callable

import pytest
from prometheus_client import CollectorRegistry

from tribar.telemetry.loop_watchdog import LoopMetrics, LoopWatchdog


class Seen:
    """An observer that tells when it was told."""

    def __init__(self) -> None:
        self.blocks: list[tuple[float, str]] = []
        self.lags_s: list[float] = []
        self.is_told, self.is_told_twice = threading.Event(), threading.Event()

    def on_lag(self, lag_s: float) -> None:
        self.lags_s.append(lag_s)

    def on_block(self, blocked_s: float, stack: str) -> None:
        self.blocks.append((blocked_s, stack))
        (self.is_told_twice if self.is_told.is_set() else self.is_told).set()


def read_a_slow_disk(seen: Seen) -> None:
    """Blocks until the watchdog has noticed; a second look must not tell it twice."""
    assert seen.is_told.wait(20)
    assert not seen.is_told_twice.wait(0.2)


def compute_something_large(seen: Seen) -> None:
    while not seen.is_told.is_set():
        sum(range(1000))


@pytest.mark.parametrize("block", [read_a_slow_disk, compute_something_large])
async def test_a_blocking_call_is_found_and_named(block: Callable[[Seen], None]) -> None:
    seen = Seen()
    watchdog = LoopWatchdog(seen, limit_s=0.1)
    watchdog.start()
    try:
        await asyncio.sleep(0.12)
        block(seen)
        await asyncio.sleep(0.12)
    finally:
        watchdog.stop()
        watchdog.stop()
    ((blocked_s, stack),) = seen.blocks
    assert blocked_s > 0.1
    assert block.__name__ in stack
    assert max(seen.lags_s) > 0.1


async def test_a_busy_loop_that_blocks_nowhere_is_left_alone() -> None:
    """Half a second of short steps, and of a thread that computes beside them."""
    seen = Seen()
    watchdog = LoopWatchdog(seen, limit_s=0.5)
    watchdog.start()
    end_s = time.monotonic() + 0.5
    other = asyncio.create_task(asyncio.to_thread(_compute_until, end_s))
    await _take_short_steps_until(end_s)
    await other
    watchdog.stop()
    assert not seen.blocks
    assert len(seen.lags_s) >= 2


async def _take_short_steps_until(end_s: float) -> None:
    while time.monotonic() < end_s:  # noqa: ASYNC110  to be busy is the point
        await asyncio.sleep(0)


def _compute_until(end_s: float) -> None:
    while time.monotonic() < end_s:
        sum(range(1000))


def test_what_the_metrics_and_the_log_say(caplog: pytest.LogCaptureFixture) -> None:
    registry = CollectorRegistry()
    metrics = LoopMetrics(registry)
    metrics.on_lag(0.02)
    metrics.on_block(0.1534, "  File slow.py\n")
    assert registry.get_sample_value("tribar_event_loop_lag_seconds_count") == 1
    assert registry.get_sample_value("tribar_event_loop_blocks_total") == 1
    assert caplog.messages == ["the event loop has been blocked for 153 ms:\n  File slow.py\n"]
