"""The meters of all gateways together, in Redis: one script call for a reservation, one for its settlement.

The scripts read Redis' own clock, so gateways whose clocks differ still agree. Every key expires once it is as if
never used. All keys share one hash tag: a cluster keeps them on one node, which one script over several keys needs.
"""

from collections.abc import Callable, Sequence
from importlib.resources import files
from typing import Any

from tribar.core.limits import Demand, Level, Meter, MeterKind, Settlement, Verdict
from tribar.stores.redis_pool import RedisPool


class RedisBuckets:
    """Implements ``Buckets``. Raises what ``RedisPool.client`` raises, above all ``Unavailable`` while it is away."""

    def __init__(
        self, pool: RedisPool, prefix: str = "tribar:{limits}:", clock: Callable[[], float] | None = None
    ) -> None:
        """``clock`` takes the place of Redis' own in tests."""
        self._pool = pool
        self._prefix = prefix
        self._clock = clock
        with pool.client() as redis:
            self._reserve = redis.register_script(_source("reserve.lua"))
            self._settle = redis.register_script(_source("settle.lua"))

    async def reserve(self, ticket: str, demands: Sequence[Demand]) -> Verdict:
        """See ``Buckets``. ``ticket`` has no blanks."""
        words = [f"{_described(demand.meter)} {demand.amount}" for demand in demands]
        refused, levels = await self._run(self._reserve, ticket, [demand.meter for demand in demands], words)
        return Verdict(tuple(_level(row) for row in levels), tuple(refused))

    async def settle(self, ticket: str, settlements: Sequence[Settlement]) -> None:
        """See ``Buckets``."""
        kept = [one for one in settlements if one.meter.kind is not MeterKind.PERMITS or one.refund > 0]
        words = [f"{_described(one.meter)} {one.refund} {one.window}" for one in kept]
        await self._run(self._settle, ticket, [one.meter for one in kept], words)

    async def renew(self, ticket: str, meters: Sequence[Meter]) -> None:
        """See ``Buckets``."""
        await self._run(self._settle, ticket, meters, [f"{_described(meter)} 0 0" for meter in meters])

    async def _run(self, script: Any, ticket: str, meters: Sequence[Meter], words: Sequence[str]) -> Any:  # noqa: ANN401
        keys = [self._prefix + meter.name for meter in meters]
        now = "-" if self._clock is None else repr(self._clock())
        with self._pool.client():
            return await script(keys, [" ".join((now, ticket, *words))])


def _described(meter: Meter) -> str:
    return f"{meter.kind.value} {meter.limit} {meter.period_s} {meter.offset_s}"


def _level(row: Sequence[bytes]) -> Level:
    remaining, reset_s, wait_s, window = map(float, row)
    return Level(remaining, reset_s, wait_s, int(window))


def _source(name: str) -> str:
    return files(__package__).joinpath(name).read_text()
