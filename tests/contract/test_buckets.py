"""The contract of the ``Buckets`` port, in memory and in a real Valkey; a new implementation joins ``STORES``."""

import asyncio
import math
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from fractions import Fraction

import pytest
from tests.servers.valkey import Valkey, valkey

from tribar.core.limits import Demand, Meter, MeterKind, Settlement, Verdict
from tribar.core.ports import Buckets
from tribar.stores.buckets.memory import MemoryBuckets
from tribar.stores.buckets.meters import Meters
from tribar.stores.buckets.redis import RedisBuckets
from tribar.stores.redis_pool import RedisPool, RedisPoolConfig

START_S = 1_764_547_200.0
"""A midnight, and so the beginning of a quota's day."""


@dataclass
class Time:
    now_s: float = START_S

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


@asynccontextmanager
async def _memory(time: Time, server: Valkey) -> AsyncIterator[Buckets]:
    meters = Meters()
    yield MemoryBuckets(meters, time)
    meters.check()


@asynccontextmanager
async def _redis(time: Time, server: Valkey) -> AsyncIterator[Buckets]:
    patient = RedisPoolConfig(url=server.url, wait_timeout_s=20.0, connect_timeout_s=20.0, answer_timeout_s=20.0)
    pool = RedisPool(patient)  # it is not about time: a busy machine fails nothing
    try:
        with pool.client() as redis:
            await redis.flushall()
            yield RedisBuckets(pool, clock=time)
            ttls_s = [await redis.ttl(key) for key in await redis.keys()]
        assert all(ttl_s > 0 for ttl_s in ttls_s), "every key expires"
    finally:
        await pool.close()


STORES: dict[str, Callable[[Time, Valkey], AbstractAsyncContextManager[Buckets]]] = {
    "memory": _memory,
    "redis": _redis,
}


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture(params=STORES)
async def buckets(request: pytest.FixtureRequest, time: Time, server: Valkey) -> AsyncIterator[Buckets]:
    async with STORES[request.param](time, server) as made:
        yield made


def rate(limit: int, name: str = "rate") -> Meter:
    return Meter(name=name, kind=MeterKind.RATE, limit=limit, period_s=60)


def quota(limit: int, name: str = "quota", offset_s: float = 0) -> Meter:
    return Meter(name=name, kind=MeterKind.QUOTA, limit=limit, period_s=86400, offset_s=offset_s)


def permits(limit: int, name: str = "permits") -> Meter:
    return Meter(name=name, kind=MeterKind.PERMITS, limit=limit, period_s=30)


async def take(buckets: Buckets, meter: Meter, amount: int = 1, ticket: str = "t") -> Verdict:
    return await buckets.reserve(ticket, [Demand(meter, amount)])


async def test_a_bucket_empties_and_fills(buckets: Buckets, time: Time) -> None:
    for left in (2, 1, 0):
        (level,) = (await take(buckets, rate(3))).levels
        assert level.remaining == pytest.approx(left, abs=1e-4)
        assert level.reset_s == pytest.approx((3 - left) * 20, abs=1e-4)
    verdict = await take(buckets, rate(3))
    assert verdict.refused == (0,)
    assert verdict.levels[0].wait_s == pytest.approx(20, abs=1e-4)
    time.now_s += 19.9
    assert not (await take(buckets, rate(3))).is_granted
    time.now_s += 0.1
    assert (await take(buckets, rate(3))).is_granted
    time.now_s += 3600
    (level,) = (await take(buckets, rate(3), 0)).levels
    assert (level.remaining, level.reset_s) == (3, 0)


async def test_the_wait_is_honest_for_any_amount(buckets: Buckets, time: Time) -> None:
    """BUG-081: a retry after exactly that time succeeds, and one a little earlier does not."""
    meter = rate(1000)
    await take(buckets, meter, 900)
    for amount in (101, 500, 1000, 7):
        verdict = await take(buckets, meter, amount)
        while verdict.is_granted:
            verdict = await take(buckets, meter, amount)
        wait_s = verdict.levels[0].wait_s
        time.now_s += wait_s - 0.001
        assert not (await take(buckets, meter, amount)).is_granted
        time.now_s += 0.001
        assert (await take(buckets, meter, amount)).is_granted


async def test_settling_gives_back_but_never_over_the_limit(buckets: Buckets, time: Time) -> None:
    meter = rate(100)
    await take(buckets, meter, 80)
    await buckets.settle("t", [Settlement(meter, 50)])
    assert (await take(buckets, meter, 0)).levels[0].remaining == pytest.approx(70, abs=1e-4)
    time.now_s += 60
    await buckets.settle("t", [Settlement(meter, 30)])
    assert (await take(buckets, meter, 0)).levels[0].remaining == 100


async def test_settling_above_the_reservation_is_a_debt(buckets: Buckets, time: Time) -> None:
    meter = rate(60)
    await take(buckets, meter, 60)
    await buckets.settle("t", [Settlement(meter, -30)])
    verdict = await take(buckets, meter, 1)
    assert not verdict.is_granted
    assert verdict.levels[0].remaining == pytest.approx(-30, abs=1e-4)
    assert verdict.levels[0].wait_s == pytest.approx(31, abs=1e-4)


async def test_a_quota_begins_anew_at_its_midnight(buckets: Buckets, time: Time) -> None:
    time.now_s = START_S + 86400 - 10
    meter = quota(100)
    granted = await take(buckets, meter, 90)
    assert granted.levels[0].remaining == 10
    refused = await take(buckets, meter, 11)
    assert refused.levels[0].wait_s == pytest.approx(10)
    assert (await take(buckets, meter, 10)).is_granted
    time.now_s += 10
    assert (await take(buckets, meter, 100)).is_granted
    await buckets.settle("t", [Settlement(meter, 90, granted.levels[0].window)])  # yesterday's gives nothing back today
    assert not (await take(buckets, meter, 1)).is_granted


async def test_a_quota_of_another_time_zone(buckets: Buckets, time: Time) -> None:
    china = quota(5, offset_s=8 * 3600)
    time.now_s = START_S + 15 * 3600
    assert (await take(buckets, china, 5)).levels[0].reset_s == pytest.approx(3600)
    time.now_s += 3600
    assert (await take(buckets, china, 5)).is_granted


async def test_a_quota_is_settled(buckets: Buckets) -> None:
    meter = quota(100)
    window = (await take(buckets, meter, 60)).levels[0].window
    await buckets.settle("t", [Settlement(meter, 50, window)])
    assert (await take(buckets, meter, 90)).is_granted
    await buckets.settle("t", [Settlement(meter, -20, window)])
    assert (await take(buckets, meter, 0)).levels[0].remaining == -20


async def test_permits_are_held_renewed_and_lapse(buckets: Buckets, time: Time) -> None:
    meter = permits(2)
    assert (await take(buckets, meter, ticket="a")).is_granted
    assert (await take(buckets, meter, ticket="b")).levels[0].remaining == 0
    assert not (await take(buckets, meter, ticket="c")).is_granted
    await buckets.settle("a", [Settlement(meter, 1)])
    assert (await take(buckets, meter, ticket="c")).is_granted
    time.now_s += 29
    await buckets.renew("c", [meter])
    time.now_s += 2  # b, whose gateway died, has lapsed
    assert (await take(buckets, meter, ticket="d")).is_granted
    assert not (await take(buckets, meter, ticket="e")).is_granted
    await buckets.settle("x", [Settlement(meter, 1)])  # nobody's ticket frees nothing
    await buckets.settle("c", [Settlement(meter, 0)])
    assert not (await take(buckets, meter, ticket="e")).is_granted


async def test_all_or_nothing(buckets: Buckets) -> None:
    demands = [Demand(rate(10), 4), Demand(quota(100), 4), Demand(permits(1), 1), Demand(rate(3, "small"), 2)]
    assert (await buckets.reserve("a", demands)).is_granted
    verdict = await buckets.reserve("b", demands)
    assert verdict.refused == (2, 3)
    after = await buckets.reserve("c", [Demand(demand.meter, 0) for demand in demands])
    assert [level.remaining for level in after.levels] == pytest.approx([6, 96, 0, 1], abs=1e-4)


async def test_concurrent_askers_get_exactly_the_limit(buckets: Buckets) -> None:
    """BUG-082: 50 at the same time, of whom 2 fit."""
    verdicts = await asyncio.gather(*(take(buckets, rate(1000), 500, f"t{i}") for i in range(50)))
    assert sum(verdict.is_granted for verdict in verdicts) == 2


@dataclass
class Oracle:
    """Slow and obvious: exact fractions, and every tick of a bucket's refill as a sum."""

    used: dict[str, Fraction] = field(default_factory=dict)
    seen_s: dict[str, Fraction] = field(default_factory=dict)
    days: dict[tuple[str, int], int] = field(default_factory=dict)
    held: dict[tuple[str, str], float] = field(default_factory=dict)

    def _refill(self, meter: Meter, now_s: float) -> Fraction:
        now = Fraction(now_s)
        back = (now - self.seen_s.get(meter.name, now)) * meter.limit / Fraction(meter.period_s)
        self.seen_s[meter.name] = now
        self.used[meter.name] = max(Fraction(0), self.used.get(meter.name, Fraction(0)) - back)
        return self.used[meter.name]

    def remaining(self, meter: Meter, now_s: float) -> float:
        match meter.kind:
            case MeterKind.RATE:
                return float(meter.limit - self._refill(meter, now_s))
            case MeterKind.QUOTA:
                return meter.limit - self.days.get((meter.name, self.day(meter, now_s)), 0)
            case MeterKind.PERMITS:
                return meter.limit - sum(
                    name == meter.name and until_s > now_s for (name, _), until_s in self.held.items()
                )

    def day(self, meter: Meter, now_s: float) -> int:
        return math.floor((Fraction(now_s) + Fraction(meter.offset_s)) / Fraction(meter.period_s))

    def reserve(self, ticket: str, demands: list[Demand], now_s: float) -> tuple[int, ...]:
        refused = tuple(
            i
            for i, demand in enumerate(demands)
            if (demand.amount or demand.meter.kind is MeterKind.PERMITS)
            and self.remaining(demand.meter, now_s) < demand.amount - 1e-3
        )
        for demand in demands if not refused else ():
            self.use(ticket, demand.meter, demand.amount, self.day(demand.meter, now_s), now_s)
        return refused

    def use(self, ticket: str, meter: Meter, amount: int, day: int, now_s: float) -> None:
        match meter.kind:
            case MeterKind.RATE:
                self.used[meter.name] = max(Fraction(0), self._refill(meter, now_s) + amount)
            case MeterKind.QUOTA:
                key = (meter.name, day)
                self.days[key] = max(0, self.days.get(key, 0) + amount)
            case MeterKind.PERMITS if amount > 0:
                self.held[meter.name, ticket] = now_s + meter.period_s
            case MeterKind.PERMITS if amount < 0:
                self.held.pop((meter.name, ticket), None)


@pytest.mark.parametrize("seed", range(5))
async def test_any_history_as_the_oracle_has_it(seed: int, server: Valkey) -> None:
    """Memory, Redis and an oracle through the same 300 random steps: same decisions, same levels."""
    draw = random.Random(seed)
    time, oracle = Time(), Oracle()
    meters = [rate(60, "r60"), rate(480, "r480"), quota(300, "q"), quota(150, "q8", 8 * 3600), permits(3, "p")]
    open_tickets: list[tuple[str, list[Demand], tuple[int, ...]]] = []
    async with _memory(time, server) as memory, _redis(time, server) as redis:
        for step in range(300):
            time.now_s += draw.choice([0, 0, 0.125, 1, 7, 40, 5000])
            ticket = f"t{step}"
            kind = draw.random()
            if kind < 0.6:
                chosen = draw.sample(meters, draw.randint(1, len(meters)))
                demands = [Demand(m, 1 if m.name == "p" else draw.choice([0, 1, 10, 50])) for m in chosen]
                mine, theirs = await memory.reserve(ticket, demands), await redis.reserve(ticket, demands)
                assert mine.refused == theirs.refused == oracle.reserve(ticket, demands, time.now_s)
                for demand, level, other in zip(demands, mine.levels, theirs.levels, strict=True):
                    assert level.window == other.window
                    assert level.wait_s == pytest.approx(other.wait_s, abs=1e-5)
                    assert level.reset_s == pytest.approx(other.reset_s, abs=1e-5)
                    exact = oracle.remaining(demand.meter, time.now_s)
                    assert level.remaining == pytest.approx(exact, abs=1e-3)
                    assert other.remaining == pytest.approx(exact, abs=1e-3)
                if mine.is_granted:
                    open_tickets.append((ticket, demands, tuple(level.window for level in mine.levels)))
            elif open_tickets:
                ticket, demands, windows = open_tickets.pop(draw.randrange(len(open_tickets)))
                settlements = []
                for demand, window in zip(demands, windows, strict=True):
                    meter = demand.meter
                    refund = 1 if meter.name == "p" else demand.amount - draw.choice([0, demand.amount, 5, 60])
                    settlements.append(Settlement(meter, refund, window))
                    if meter.kind is not MeterKind.QUOTA or window == oracle.day(meter, time.now_s):
                        oracle.use(ticket, meter, -refund, window, time.now_s)
                await memory.settle(ticket, settlements)
                await redis.settle(ticket, settlements)
