from collections.abc import Mapping
from datetime import date

import pytest

from tribar.core.errors import Unavailable
from tribar.core.usage import UsageCounts, UsageKey
from tribar.gateway import usage
from tribar.gateway.usage import UsageRecorder
from tribar.stores.usage.memory import MemoryUsageLedger

NOON_S = 1_767_268_800.0  # 2026-01-01
DAY = date(2026, 1, 1)
ONE = UsageCounts(1, 10, 5)


class FlakyLedger(MemoryUsageLedger):
    """Fails before or after it has added, as often as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.n_before = self.n_after = 0

    async def add(self, batch_id: str, counts: Mapping[UsageKey, UsageCounts]) -> None:
        if self.n_before:
            self.n_before -= 1
            raise Unavailable("away", retry_after_s=1)
        await super().add(batch_id, counts)
        if self.n_after:
            self.n_after -= 1
            raise Unavailable("cut off", retry_after_s=1)

    async def of(self, tenant: str) -> Mapping[UsageKey, UsageCounts]:
        return await self.totals(tenant, DAY, date(2026, 1, 2))


async def test_uses_add_up_and_days_end_at_midnight() -> None:
    ledger, now = FlakyLedger(), [NOON_S]
    recorder = UsageRecorder(ledger, lambda: now[0])
    recorder.record("a", "m", ONE)
    recorder.record("a", "m", UsageCounts(1, 0, 1))
    recorder.record("b", "m", ONE)
    now[0] += 86400 / 2
    recorder.record("a", "m", ONE)
    await recorder.flush()
    assert await ledger.of("a") == {
        UsageKey(DAY, "a", "m"): UsageCounts(2, 10, 6),
        UsageKey(date(2026, 1, 2), "a", "m"): ONE,
    }
    assert await ledger.of("b") == {UsageKey(DAY, "b", "m"): ONE}


async def test_nothing_is_lost_or_counted_twice_whichever_way_the_ledger_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ledger = FlakyLedger()
    recorder = UsageRecorder(ledger, lambda: NOON_S)
    for n_before, n_after in ((2, 0), (0, 2), (1, 1)):
        ledger.n_before, ledger.n_after = n_before, n_after
        for _ in range(3):
            recorder.record("a", "m", ONE)
            with pytest.raises(Unavailable):
                await recorder.flush()
            if not ledger.n_before + ledger.n_after:
                break
    await recorder.close()
    ((_, counts),) = (await ledger.of("a")).items()
    assert counts == UsageCounts(6, 60, 30)
    assert not caplog.messages


async def test_a_ledger_that_stays_away_is_told_in_the_log_and_memory_is_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "MAX_KEYS", 2)
    ledger = FlakyLedger()
    ledger.n_before = 10**6
    recorder = UsageRecorder(ledger, lambda: NOON_S)
    for tenant in ("a", "b", "c", "a"):
        recorder.record(tenant, "m", ONE)
    await recorder.close()
    assert caplog.messages == [
        "a use of m by c is lost: too many wait for the ledger",
        "use is kept in memory: away",
        "the use of 2 tenants and models is lost: the ledger is away",
    ]
