"""How much may be tried again: a share of the requests, so that retries never multiply an outage. Pure.

A token bucket filled by requests instead of time (Google SRE Book, chapter 21, "Client-Side Throttling" and its retry
budget; Finagle's RetryBudget).
"""

from tribar.core.errors import Internal, Overloaded, TribarError


class RetryBudget:
    """Over any number of requests at most ``share`` of them, plus ``burst``, are tried again."""

    def __init__(self, share: float, burst: int = 10) -> None:
        self._share = share
        self._burst = float(burst) if share else 0.0
        self._balance = self._burst

    def deposit(self) -> None:
        """A request arrived."""
        self._balance = min(self._burst, self._balance + self._share)

    def withdraw(self) -> bool:
        """Whether one more attempt may be made; it is paid for with that."""
        if self._balance < 1:
            return False
        self._balance -= 1
        return True

    @property
    def balance(self) -> float:
        """Attempts that are left."""
        return self._balance


def may_succeed_elsewhere(error: TribarError) -> bool:
    """Whether another attempt makes sense: the upstream was at fault or full, not the request, nor its time over."""
    return isinstance(error, Overloaded | Internal)
