"""The contract of the ``UsageLedger`` port, in memory, in SQLite and in a real PostgreSQL."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import date
from pathlib import Path

import pytest
from tests.servers.postgres import Postgres, postgres

from tribar.core.ports import UsageLedger
from tribar.core.usage import UsageCounts, UsageKey
from tribar.stores.sql import SqlPool, SqlPoolConfig
from tribar.stores.usage.memory import MemoryUsageLedger
from tribar.stores.usage.sql import SqlUsageLedger

FIRST, LAST = date(2026, 1, 30), date(2026, 2, 2)


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@asynccontextmanager
async def _memory(request: pytest.FixtureRequest) -> AsyncIterator[UsageLedger]:
    yield MemoryUsageLedger()


@asynccontextmanager
async def _sqlite(request: pytest.FixtureRequest) -> AsyncIterator[UsageLedger]:
    directory: Path = request.getfixturevalue("tmp_path")
    async with _sql(str(directory / "usage.db")) as ledger:
        yield ledger


@asynccontextmanager
async def _postgres(request: pytest.FixtureRequest) -> AsyncIterator[UsageLedger]:
    server: Postgres = request.getfixturevalue("server")
    async with _sql(server.url) as ledger:
        yield ledger


@asynccontextmanager
async def _sql(url: str) -> AsyncIterator[UsageLedger]:
    pool = SqlPool(SqlPoolConfig(url=url))
    try:
        yield SqlUsageLedger(pool)
    finally:
        await pool.close()


LEDGERS: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[UsageLedger]]] = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
}


@pytest.fixture(params=LEDGERS)
async def ledger(request: pytest.FixtureRequest) -> AsyncIterator[UsageLedger]:
    async with LEDGERS[request.param](request) as made:
        yield made


@pytest.fixture
def tenant(request: pytest.FixtureRequest) -> str:
    """One of this test's own: the server outlives it."""
    return f"t{abs(hash(request.node.nodeid)) % 10**12}"


async def test_batches_add_up_by_day_tenant_and_model(ledger: UsageLedger, tenant: str) -> None:
    early, late = UsageKey(FIRST, tenant, "b"), UsageKey(LAST, tenant, "a")
    other, outside = UsageKey(FIRST, f"{tenant}2", "b"), UsageKey(date(2026, 2, 3), tenant, "a")
    one = UsageCounts(1, 10, 20)
    await ledger.add(f"{tenant}-1", {late: one, early: one, other: one, outside: one})
    await ledger.add(f"{tenant}-2", {early: UsageCounts(2, 0, 2**40)})
    totals = await ledger.totals(tenant, FIRST, LAST)
    assert totals == {early: UsageCounts(3, 10, 20 + 2**40), late: one}
    assert list(totals) == [early, late]


async def test_a_batch_counts_once(ledger: UsageLedger, tenant: str) -> None:
    """It is sent again where nobody knows how its first try ended."""
    key = UsageKey(FIRST, tenant, "m")
    for _ in range(3):
        await ledger.add(f"{tenant}-same", {key: UsageCounts(1, 1, 1)})
    assert await ledger.totals(tenant, FIRST, LAST) == {key: UsageCounts(1, 1, 1)}
    await ledger.add(f"{tenant}-empty", {})


async def test_concurrent_batches_lose_nothing(ledger: UsageLedger, tenant: str) -> None:
    keys = [UsageKey(FIRST, tenant, f"m{i}") for i in range(5)]
    batches = [{key: UsageCounts(1, 2, 3) for key in (keys if i % 2 else reversed(keys))} for i in range(20)]
    await asyncio.gather(*(ledger.add(f"{tenant}-{i}", batch) for i, batch in enumerate(batches)))
    assert await ledger.totals(tenant, FIRST, LAST) == dict.fromkeys(keys, UsageCounts(20, 40, 60))


async def test_nobody_has_used_nothing(ledger: UsageLedger) -> None:
    assert await ledger.totals("nobody", FIRST, LAST) == {}
