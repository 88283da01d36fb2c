"""The limits of one front end, from its settings: in memory, or in Redis where there is one; and what is used."""

import asyncio
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from tribar.app.api_keys import ApiKeys
from tribar.app.config import LimitingConfig
from tribar.app.shared_stores import SharedStores
from tribar.core.ports import Buckets
from tribar.core.usage import UsageCounts
from tribar.gateway.limits.gate import LimitGate, LimitsConfig
from tribar.gateway.limits.rules import Allowance, Rule, RuleBook, Subject
from tribar.gateway.usage import UsageRecorder
from tribar.stores.buckets.memory import MemoryBuckets
from tribar.telemetry.limits import LimitMetrics

SECONDS_PER_HOUR = 3600


class Limiting:
    """``gate`` is what the gateway asks. The limits of keys are looked up anew with each request.

    ``ledger`` is where use is written down, or None.
    """

    def __init__(
        self,
        config: LimitingConfig,
        rules: Sequence[Rule],
        keys: ApiKeys | None,
        stores: SharedStores,
        registry: CollectorRegistry,
    ) -> None:
        self._running: list[asyncio.Task[None]] = []
        self.ledger = stores.usage_ledger()
        self._recorder = None if self.ledger is None else UsageRecorder(self.ledger)
        book = RuleBook(
            rules,
            _no_allowance if keys is None else keys.allowance_of,
            day_offset_s=config.quota_utc_offset_h * SECONDS_PER_HOUR,
        )
        self.gate = LimitGate(
            _buckets(stores),
            book,
            LimitsConfig(
                estimated_output_tokens=config.estimated_output_tokens, is_open_while_away=config.limits_fail_open
            ),
            _Observer(LimitMetrics(registry), self._recorder),
        )

    def start(self) -> None:
        """Renew permits and write down use from now on."""
        self._running.append(asyncio.create_task(self.gate.run(), name="renew permits"))
        if self._recorder is not None:
            self._running.append(asyncio.create_task(self._recorder.run(), name="write down use"))

    async def stop(self) -> None:
        """Settle what has ended, and write down the last use."""
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)
        await self.gate.close()
        if self._recorder is not None:
            await self._recorder.close()


class _Observer:
    """Implements ``LimitObserver``: counts refusals, hands on use."""

    def __init__(self, metrics: LimitMetrics, recorder: UsageRecorder | None) -> None:
        self.on_refusal = metrics.on_refusal
        self.on_unmetered = metrics.on_unmetered
        self._recorder = recorder

    def on_use(self, subject: Subject, counts: UsageCounts) -> None:
        """See ``LimitObserver``."""
        if self._recorder is not None:
            self._recorder.record(subject.tenant, subject.model, counts)


def _buckets(stores: SharedStores) -> Buckets:
    if stores.redis is None:
        return MemoryBuckets()
    from tribar.stores.buckets.redis import RedisBuckets

    return RedisBuckets(stores.redis)


def _no_allowance(_: str) -> Allowance | None:
    return None
