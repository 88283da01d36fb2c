"""Limits that are known to be used up: whoever is under one is refused without a look at the request or the store."""

from collections.abc import Iterable

from tribar.gateway.limits.rules import Limit

MAX_LIMITS = 10_000


class ExhaustedLimits:
    """Until when limits on requests cannot be met. Pure: time is an argument.

    A refund may make room earlier, but the refused have been told this time and keep to it.
    """

    def __init__(self) -> None:
        self._until_s: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._until_s)

    def add(self, limit: Limit, until_s: float, now_s: float) -> None:
        """Remember it; what has passed is forgotten where there is no more room."""
        if len(self._until_s) >= MAX_LIMITS:
            self._until_s = {name: at_s for name, at_s in self._until_s.items() if at_s > now_s}
        if len(self._until_s) < MAX_LIMITS:
            self._until_s[limit.meter.name] = until_s

    def first(self, limits: Iterable[Limit], now_s: float) -> tuple[Limit, float] | None:
        """One of ``limits`` that is used up, and for how long; the longest."""
        waits = [(self._until_s.get(limit.meter.name, now_s) - now_s, limit) for limit in limits]
        wait_s, limit = max(waits, key=lambda pair: pair[0], default=(0.0, None))
        return None if limit is None or wait_s <= 0 else (limit, wait_s)
