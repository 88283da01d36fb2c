"""A circuit breaker: an upstream that fails or stalls is left alone for a while. Pure; time is an argument.

What counts, of a request that was sent:

- Its failure, before or after the first token: the upstream could not be reached, broke off, or said that it failed.
- A first token later than ``slow_ttft_s``.
- A caller who leaves, or whose own deadline passes, before the first token says nothing about the upstream, which may
  just have begun. But an upstream that takes requests and never answers would not be found out if only callers lost
  patience with it; so such a wait counts as a late first token once it was as long as one.
- A refusal that is the caller's fault (4xx) proves that the upstream works.
"""

from dataclasses import dataclass
from enum import StrEnum

from tribar.gateway.window import Counts, RollingWindow


class BreakerState(StrEnum):
    """``half_open``: one request tries whether the upstream has recovered."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerPolicy:
    """When it opens, and for how long.

    ``max_failures`` in a row open it, or ``max_error_share`` of at least ``min_requests`` in ``window_s``, or
    ``max_slow_share`` of as many first tokens that came after ``slow_ttft_s`` (0: never). The pause doubles from
    ``first_pause_s`` to ``max_pause_s`` with every opening until it has been closed for a whole window.
    """

    window_s: float = 30.0
    min_requests: int = 10
    max_failures: int = 5
    max_error_share: float = 0.5
    slow_ttft_s: float = 30.0
    max_slow_share: float = 0.8
    first_pause_s: float = 1.0
    max_pause_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Permit:
    """Leave to send one request. What became of it is told with it, before the permit is dropped."""

    epoch: int
    is_probe: bool


class Breaker:
    """One upstream's breaker. Requests that were sent before it opened change nothing any more."""

    def __init__(self, policy: BreakerPolicy) -> None:
        self._policy = policy
        self._window = RollingWindow(policy.window_s)
        self._epoch = 0
        self._n_failures = 0
        self._n_openings = 0
        self._open_until_s: float | None = None
        self._closed_since_s: float | None = None
        self._is_probing = False

    def state(self, now_s: float) -> BreakerState:
        """Open turns into half-open with time."""
        if self._open_until_s is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now_s < self._open_until_s else BreakerState.HALF_OPEN

    def is_usable(self, now_s: float) -> bool:
        """Whether ``begin`` would give a permit."""
        state = self.state(now_s)
        return state is BreakerState.CLOSED or (state is BreakerState.HALF_OPEN and not self._is_probing)

    def retry_after_s(self, now_s: float) -> float:
        """When it may be usable; 0 where it is."""
        return 0.0 if self._open_until_s is None else max(0.0, self._open_until_s - now_s)

    def counts(self, now_s: float) -> Counts:
        """The recent past."""
        return self._window.total(now_s)

    def begin(self, now_s: float) -> Permit | None:
        """Leave to send a request; while half-open for exactly one at a time."""
        if not self.is_usable(now_s):
            return None
        self._is_probing = self._open_until_s is not None
        return Permit(self._epoch, self._is_probing)

    def first_token(self, permit: Permit, now_s: float, ttft_s: float) -> None:
        """The first token came: a probe has succeeded."""
        if permit.epoch != self._epoch:
            return
        if permit.is_probe:
            self._close(now_s)
        self._wait(now_s, ttft_s)

    def succeed(self, permit: Permit, now_s: float) -> None:
        """The answer is complete."""
        if permit.epoch != self._epoch:
            return
        self._n_failures = 0
        self._window.now(now_s).n_ended += 1

    def refuse(self, permit: Permit, now_s: float) -> None:
        """It was refused for the caller's fault, by an upstream that works."""
        if permit.epoch == self._epoch and permit.is_probe:
            self._close(now_s)

    def fail(self, permit: Permit, now_s: float) -> None:
        """It failed, at any time."""
        if permit.epoch != self._epoch:
            return
        self._n_failures += 1
        slice_ = self._window.now(now_s)
        slice_.n_ended += 1
        slice_.n_failed += 1
        counts = self._window.total(now_s)
        is_too_many = counts.n_ended >= self._policy.min_requests and counts.error_share >= self._policy.max_error_share
        if self._is_probing or is_too_many or self._n_failures >= self._policy.max_failures:
            self.open(now_s)

    def give_up(self, permit: Permit, now_s: float, waited_s: float) -> None:
        """The caller left, or its deadline passed, ``waited_s`` after it was sent and before the first token."""
        if permit.epoch != self._epoch:
            return
        is_late = self._is_slow(waited_s)
        if permit.is_probe:
            self._is_probing = False
            if is_late:
                self.open(now_s)
        elif is_late:
            self._wait(now_s, waited_s)

    def open(self, now_s: float) -> None:
        """Leave the upstream alone from now on."""
        policy = self._policy
        if self._closed_since_s is not None and now_s - self._closed_since_s > policy.window_s:
            self._n_openings = 0
        pause_s = min(policy.max_pause_s, policy.first_pause_s * 2.0 ** min(self._n_openings, 64))
        self._n_openings += 1
        self._open_until_s = now_s + pause_s
        self._closed_since_s = None
        self._is_probing = False
        self._epoch += 1
        self._forget()

    def half_open(self, now_s: float) -> None:
        """The upstream was seen to be back: try it now. Does nothing where it is not open."""
        if self._open_until_s is not None:
            self._open_until_s = min(self._open_until_s, now_s)

    def check(self) -> None:
        """Assert that a probe runs only while the circuit is not closed, and that counts add up."""
        assert not self._is_probing or self._open_until_s is not None
        assert (self._closed_since_s is None) or self._open_until_s is None
        assert 0 <= self._n_failures <= self._policy.max_failures

    def _wait(self, now_s: float, ttft_s: float) -> None:
        slice_ = self._window.now(now_s)
        slice_.n_first += 1
        slice_.ttft_sum_s += ttft_s
        if not self._is_slow(ttft_s):
            return
        slice_.n_slow += 1
        counts = self._window.total(now_s)
        is_enough = counts.n_first >= self._policy.min_requests
        if is_enough and counts.n_slow >= self._policy.max_slow_share * counts.n_first:
            self.open(now_s)

    def _is_slow(self, ttft_s: float) -> bool:
        return 0 < self._policy.slow_ttft_s <= ttft_s

    def _close(self, now_s: float) -> None:
        self._open_until_s = None
        self._closed_since_s = now_s
        self._is_probing = False
        self._forget()

    def _forget(self) -> None:
        self._n_failures = 0
        self._window.clear()
