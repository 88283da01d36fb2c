"""The meters of one gateway, in its memory."""

import time
from collections.abc import Callable, Sequence

from tribar.core.limits import Demand, Meter, Settlement, Verdict
from tribar.stores.buckets.meters import Meters


class MemoryBuckets:
    """Implements ``Buckets``. Nothing ever waits, and a restart forgets every count."""

    def __init__(self, meters: Meters | None = None, clock: Callable[[], float] = time.time) -> None:
        """``clock`` gives seconds since 1970: quotas begin anew at its midnights."""
        self._meters = meters or Meters()
        self._clock = clock

    async def reserve(self, ticket: str, demands: Sequence[Demand]) -> Verdict:
        """See ``Buckets``. Raises ``Overloaded`` where there is no room for more meters."""
        return self._meters.reserve(ticket, demands, self._clock())

    async def settle(self, ticket: str, settlements: Sequence[Settlement]) -> None:
        """See ``Buckets``."""
        self._meters.settle(ticket, settlements, self._clock())

    async def renew(self, ticket: str, meters: Sequence[Meter]) -> None:
        """See ``Buckets``."""
        self._meters.renew(ticket, meters, self._clock())
