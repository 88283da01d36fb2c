"""How much of what is of no use to itself a peer may send."""

from collections.abc import Callable
from time import monotonic


class Allowance:
    """Holds up to ``burst`` and grows by ``per_s``, and by what is earned.

    Cancelled calls, settings and empty frames are ordinary, and each costs the server more than the peer: a peer that
    sends nothing else is to be told to go (CVE-2023-44487, CVE-2019-9515, CVE-2019-9518, CVE-2025-8671).
    """

    __slots__ = ("_burst", "_left", "_now", "_per_s", "_seen_s")

    def __init__(self, burst: int, per_s: float, now: Callable[[], float] = monotonic) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._now = now
        self._seen_s = now()

    def spend(self, cost: int = 1) -> bool:
        """Whether there was as much."""
        now_s = self._now()
        self._left = min(self._burst, self._left + (now_s - self._seen_s) * self._per_s) - cost
        self._seen_s = now_s
        return self._left >= 0

    def earn(self) -> None:
        """A call was answered."""
        if self._left < self._burst:
            self._left += 1
