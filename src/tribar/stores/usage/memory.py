"""The ledger's fake: what a program without a database keeps."""

from collections.abc import Mapping
from datetime import date

from tribar.core.usage import UsageCounts, UsageKey


class MemoryUsageLedger:
    """Implements ``UsageLedger``; grows with tenants, models and days."""

    def __init__(self) -> None:
        self._counts: dict[UsageKey, UsageCounts] = {}
        self._batches: set[str] = set()

    async def add(self, batch_id: str, counts: Mapping[UsageKey, UsageCounts]) -> None:
        """See ``UsageLedger``."""
        if batch_id not in self._batches:
            self._batches.add(batch_id)
            for key, more in counts.items():
                self._counts[key] = self._counts.get(key, UsageCounts()) + more

    async def totals(self, tenant: str, first: date, last: date) -> Mapping[UsageKey, UsageCounts]:
        """See ``UsageLedger``."""
        keys = sorted(key for key in self._counts if key.tenant == tenant and first <= key.day <= last)
        return {key: self._counts[key] for key in keys}
