"""Counts of the recent past: a window that rolls in slices. Pure."""

from dataclasses import dataclass, field

N_SLICES = 10


@dataclass(slots=True)
class Counts:
    """Ended requests and those among them that failed; first tokens, those that came late, and the sum of all waits
    for them in seconds."""

    n_ended: int = 0
    n_failed: int = 0
    n_first: int = 0
    n_slow: int = 0
    ttft_sum_s: float = 0.0

    @property
    def mean_ttft_s(self) -> float:
        """Mean time to first token; 0 without any."""
        return self.ttft_sum_s / self.n_first if self.n_first else 0.0

    @property
    def error_share(self) -> float:
        """Share of the ended requests that failed; 0 without any."""
        return self.n_failed / self.n_ended if self.n_ended else 0.0


@dataclass(slots=True)
class RollingWindow:
    """The last ``window_s`` seconds, forgotten a tenth at a time."""

    window_s: float
    _slices: dict[int, Counts] = field(default_factory=dict)

    def now(self, now_s: float) -> Counts:
        """The slice of ``now_s``, to be added to."""
        current = self._index(now_s)
        if current not in self._slices:
            self._forget(current)
            self._slices[current] = Counts()
        return self._slices[current]

    def total(self, now_s: float) -> Counts:
        """All that the window holds at ``now_s``."""
        self._forget(self._index(now_s))
        slices = self._slices.values()
        return Counts(
            sum(one.n_ended for one in slices),
            sum(one.n_failed for one in slices),
            sum(one.n_first for one in slices),
            sum(one.n_slow for one in slices),
            sum(one.ttft_sum_s for one in slices),
        )

    def clear(self) -> None:
        """Forget everything."""
        self._slices.clear()

    def _index(self, now_s: float) -> int:
        return int(now_s * N_SLICES / self.window_s)

    def _forget(self, current: int) -> None:
        for index in [index for index in self._slices if index <= current - N_SLICES]:
            del self._slices[index]
