"""The contract of batching policies: when waiting sequences may start, and when finished ones may leave."""

from typing import Protocol

from tribar.engine.waiting import WaitingQueue


class BatchingPolicy(Protocol):
    """``holds_finished``: finished rows keep computing and holding KV until their whole batch has finished."""

    holds_finished: bool

    def n_admissible(self, n_busy: int, waiting: WaitingQueue, now_s: float) -> int:
        """How many may start in this step; ``n_busy`` sequences hold rows now."""
        ...

    def admitted(self, n: int, is_full: bool) -> None:
        """``n`` did start; ``is_full``: there was no row or no KV blocks for the next."""
        ...

    def wait_s(self, n_busy: int, waiting: WaitingQueue, now_s: float) -> float | None:
        """Seconds until the policy lets someone start by the clock alone; None where the clock plays no part."""
        ...
