"""One upstream of a pool, and what is known of it."""

import logging

from tribar.core.errors import TribarError
from tribar.gateway.breaker import Breaker, BreakerPolicy
from tribar.gateway.upstream.base import Upstream

_log = logging.getLogger(__name__)


class Member:
    """An upstream with its breaker. ``is_up`` is what the active checks say; it is down until the first went well.

    ``is_open``: its connections have been made.
    """

    def __init__(self, name: str, upstream: Upstream, policy: BreakerPolicy) -> None:
        self.name = name
        self.upstream = upstream
        self.breaker = Breaker(policy)
        self.is_up = self.is_open = False
        self.down_because = "it has not been asked yet"
        self._n_missed = 0
        self._rests_until_s = float("-inf")

    def is_usable(self, now_s: float) -> bool:
        """Whether a request may be sent there."""
        return self.is_up and now_s >= self._rests_until_s and self.breaker.is_usable(now_s)

    def retry_after_s(self, now_s: float) -> float | None:
        """When it may be usable again; None where that cannot be told, since it is down."""
        if not self.is_up:
            return None
        return max(self.breaker.retry_after_s(now_s), self._rests_until_s - now_s, 0.0)

    def rest(self, until_s: float) -> None:
        """It said that it is full: send nothing before ``until_s``."""
        self._rests_until_s = max(self._rests_until_s, until_s)

    def answered(self, now_s: float) -> bool:
        """An active check went well; whether it is back with that."""
        self._n_missed = 0
        if self.is_up:
            return False
        self.is_up = True
        self.breaker.half_open(now_s)
        _log.info("the upstream %s serves", self.name)
        return True

    def missed(self, error: TribarError, max_missed: int) -> bool:
        """An active check failed; whether it is down with that."""
        self._n_missed += 1
        self.down_because = error.message
        if self._n_missed == 1 and not self.is_up:
            _log.warning("the upstream %s does not serve: %s", self.name, error.message)
        if not self.is_up or self._n_missed < max_missed:
            return False
        self.is_up = False
        _log.warning("the upstream %s is down: %s", self.name, error.message)
        return True

    def eject(self, now_s: float, reason: str) -> None:
        """Leave it alone for a while."""
        self.breaker.open(now_s)
        self.log_opening(now_s, reason)

    def log_opening(self, now_s: float, reason: str) -> None:
        """Tell why its breaker has opened."""
        pause_s = self.breaker.retry_after_s(now_s)
        _log.warning("the upstream %s is left alone for %.3g s: %s", self.name, pause_s, reason)
