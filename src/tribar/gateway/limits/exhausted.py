"""Limits that are known to be used up: whoever is under one is refused without a look at the request or the store."""

from collections.abc import Iterable

from tribar.core.limits import Level
from tribar.gateway.limits.rules import Limit

MAX_LIMITS = 10_000


class ExhaustedLimits:
    """Until when limits on requests cannot be met. Pure: time is an argument.

    A refund may make room earlier, but the refused have been told this time and keep to it.
    """

    def __init__(self) -> None:
        self._times_s: dict[str, tuple[float, float]] = {}  # when one more fits, and when it is as if never used

    def __len__(self) -> int:
        return len(self._times_s)

    def add(self, limit: Limit, level: Level, now_s: float) -> None:
        """Remember what ``level`` says; what has passed is forgotten where there is no more room."""
        if len(self._times_s) >= MAX_LIMITS:
            self._times_s = {name: times for name, times in self._times_s.items() if times[0] > now_s}
        if len(self._times_s) < MAX_LIMITS:
            self._times_s[limit.meter.name] = (now_s + level.wait_s, now_s + level.reset_s)

    def longest(self, limits: Iterable[Limit], now_s: float) -> tuple[Limit, Level] | None:
        """The one of ``limits`` that stays used up longest, if any is; its level as it is now."""
        found: tuple[Limit, Level] | None = None
        for limit in limits:
            until_s, reset_at_s = self._times_s.get(limit.meter.name, (now_s, now_s))
            wait_s = until_s - now_s
            if wait_s > (0.0 if found is None else found[1].wait_s):
                found = limit, Level(0.0, reset_at_s - now_s, wait_s)
        return found
