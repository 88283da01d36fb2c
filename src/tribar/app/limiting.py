"""The limits of one front end, from its settings: in memory, or in Redis where there is one."""

import asyncio
from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from tribar.app.api_keys import ApiKeys
from tribar.app.config import LimitingConfig
from tribar.app.shared_stores import SharedStores
from tribar.core.ports import Buckets
from tribar.gateway.limits.gate import LimitGate, LimitsConfig
from tribar.gateway.limits.rules import Allowance, Rule, RuleBook, Subject
from tribar.stores.buckets.memory import MemoryBuckets
from tribar.telemetry.limits import LimitMetrics

SECONDS_PER_HOUR = 3600


class Limiting:
    """``gate`` is what the gateway asks. The limits of keys are looked up anew with each request."""

    def __init__(
        self,
        config: LimitingConfig,
        rules: Sequence[Rule],
        keys: ApiKeys | None,
        stores: SharedStores,
        registry: CollectorRegistry,
    ) -> None:
        self._renewing: asyncio.Task[None] | None = None
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
            _Observer(LimitMetrics(registry)),
        )

    def start(self) -> None:
        """Renew permits from now on."""
        self._renewing = asyncio.create_task(self.gate.run(), name="renew permits")

    async def stop(self) -> None:
        """Settle what has ended."""
        if self._renewing is not None:
            self._renewing.cancel()
        await self.gate.close()


class _Observer:
    """Implements ``LimitObserver``: counts refusals."""

    def __init__(self, metrics: LimitMetrics) -> None:
        self.on_refusal = metrics.on_refusal
        self.on_unmetered = metrics.on_unmetered

    def on_use(self, subject: Subject, n_prompt: int, n_completion: int) -> None:
        """See ``LimitObserver``."""


def _buckets(stores: SharedStores) -> Buckets:
    if stores.redis is None:
        return MemoryBuckets()
    from tribar.stores.buckets.redis import RedisBuckets

    return RedisBuckets(stores.redis)


def _no_allowance(_: str) -> Allowance | None:
    return None
