"""Finds calls that block an event loop, and says where.

The loop only writes down the time, twenty times a second. A thread beside it looks whether that time is too old, and
if so what the loop's thread is doing at that moment. Time in which the system gave that thread no CPU is no block of
ours and does not count (Linux tells it; elsewhere it counts).
"""

import asyncio
import logging
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram

BEAT_S = 0.05
MAX_FRAMES = 12
LAG_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)

_log = logging.getLogger(__name__)


class LoopObserver(Protocol):
    """``on_lag`` is called on the loop, ``on_block`` in the watchdog's thread."""

    def on_lag(self, lag_s: float) -> None:
        """A timer came so much later than it was due."""
        ...

    def on_block(self, blocked_s: float, stack: str) -> None:
        """One call has kept the loop for so long by now; ``stack`` ends with where it is."""
        ...


class LoopMetrics:
    """Implements ``LoopObserver``: the lag as a histogram, blocks as a count and as lines of the log."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lag = Histogram(
            "tribar_event_loop_lag_seconds",
            "How late timers of the front end's event loop are.",
            registry=registry,
            buckets=LAG_BUCKETS_S,
        )
        self._blocks = Counter(
            "tribar_event_loop_blocks", "Calls that blocked the front end's event loop.", registry=registry
        )

    def on_lag(self, lag_s: float) -> None:
        """See ``LoopObserver``."""
        self._lag.observe(lag_s)

    def on_block(self, blocked_s: float, stack: str) -> None:
        """See ``LoopObserver``."""
        self._blocks.inc()
        _log.warning("the event loop has been blocked for %.0f ms:\n%s", blocked_s * 1000, stack)


class LoopWatchdog:
    """Watches the running loop from ``start`` to ``stop``; tells each block longer than ``limit_s`` once."""

    def __init__(self, observer: LoopObserver, limit_s: float = 0.1) -> None:
        self._observer = observer
        self._limit_s = limit_s
        self._is_over = threading.Event()
        self._beat_at_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Call it on the loop."""
        self._beat_at_s = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)
        loop_thread = threading.current_thread()
        self._thread = threading.Thread(
            target=self._watch, args=(loop_thread.ident, loop_thread.native_id), name="loop watchdog", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Idempotent. Waits for the thread, which ends within a beat."""
        if self._timer is not None and self._thread is not None:
            self._timer.cancel()
            self._is_over.set()
            self._thread.join()

    def _beat(self) -> None:
        now_s = time.monotonic()
        self._observer.on_lag(max(0.0, now_s - self._beat_at_s - BEAT_S))
        self._beat_at_s = now_s
        self._timer = asyncio.get_running_loop().call_later(BEAT_S, self._beat)

    def _watch(self, ident: int, native_id: int) -> None:
        told_s = 0.0
        last_s, starved_s = 0.0, 0.0
        while not self._is_over.wait(BEAT_S):
            beat_at_s = self._beat_at_s
            if beat_at_s != last_s:
                last_s, starved_s = beat_at_s, _starved_s(native_id)
                continue
            blocked_s = time.monotonic() - beat_at_s - BEAT_S
            if beat_at_s == told_s or blocked_s <= self._limit_s:
                continue
            frame = sys._current_frames().get(ident)
            blocked_s -= _starved_s(native_id) - starved_s
            if blocked_s > self._limit_s and beat_at_s == self._beat_at_s and frame is not None:
                told_s = beat_at_s
                self._observer.on_block(blocked_s, "".join(traceback.format_stack(frame, MAX_FRAMES)))


def _starved_s(native_id: int) -> float:
    """How long the thread has waited for a CPU in its life (proc(5), ``schedstat``); 0 where nobody tells."""
    try:
        return int(Path(f"/proc/self/task/{native_id}/schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0
