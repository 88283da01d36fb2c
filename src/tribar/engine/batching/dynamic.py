"""Dynamic batching: gather, start as one batch, run it to the end without joins (Triton's dynamic batcher)."""

from tribar.engine.waiting import WaitingQueue

CLOCK_TOLERANCE_S = 1e-9
"""Sleeping exactly ``wait_s`` must be enough, whatever the sum of floats rounds to."""


class Dynamic:
    """``BatchingPolicy``: a batch starts at ``preferred_size`` waiting, or when the oldest has waited ``delay_s``.

    Everyone waiting then is part of it, as far as KV blocks go; prefill may take several steps. Finished rows leave.
    A preempted sequence goes into the next batch.
    """

    holds_finished = False

    def __init__(self, preferred_size: int, delay_s: float) -> None:
        self._preferred_size = preferred_size
        self._delay_s = delay_s
        self._n_open = 0

    def n_admissible(self, n_busy: int, waiting: WaitingQueue, now_s: float) -> int:
        """The members of the batch that have not started yet."""
        if n_busy == 0:
            self._n_open = len(waiting) if self._is_due(waiting, now_s) else 0
        return self._n_open

    def admitted(self, n: int, is_full: bool) -> None:
        """A batch that found no blocks for a member is closed: that one and the rest go into the next."""
        self._n_open = 0 if is_full else self._n_open - n

    def wait_s(self, n_busy: int, waiting: WaitingQueue, now_s: float) -> float | None:
        """Until the oldest has waited long enough, while no batch runs."""
        if n_busy or not waiting or len(waiting) >= self._preferred_size:
            return None
        return max(0.0, waiting.oldest_arrival_s() + self._delay_s - now_s)

    def _is_due(self, waiting: WaitingQueue, now_s: float) -> bool:
        if not waiting:
            return False
        if len(waiting) >= self._preferred_size:
            return True
        return now_s + CLOCK_TOLERANCE_S >= waiting.oldest_arrival_s() + self._delay_s
