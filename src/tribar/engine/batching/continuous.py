"""Continuous batching: everyone may start as soon as there is room, and leaves when finished (Orca, OSDI 2022)."""

from tribar.engine.waiting import WaitingQueue


class Continuous:
    """``BatchingPolicy`` without memory."""

    holds_finished = False

    def n_admissible(self, n_busy: int, waiting: WaitingQueue, now_s: float) -> int:
        """Everyone."""
        return len(waiting)

    def admitted(self, n: int, is_full: bool) -> None:
        """Nothing to note."""

    def wait_s(self, n_busy: int, waiting: WaitingQueue, now_s: float) -> float | None:
        """The clock plays no part."""
        return None
