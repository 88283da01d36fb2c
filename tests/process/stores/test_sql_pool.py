"""The pool on a real PostgreSQL that is killed and restarted under it, and on a SQLite file."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.sql_pool import measure
from prometheus_client import CollectorRegistry
from sqlalchemy import text
from tests.servers.postgres import Postgres, postgres

from tribar.core.errors import Internal, InvalidRequest, Unavailable
from tribar.stores.sql import SqlPool, SqlPoolConfig
from tribar.telemetry.pools import PoolFamilies, PoolMetrics


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres() as running:
        yield running


@asynccontextmanager
async def pool_on(url: str, registry: CollectorRegistry | None = None, **config: Any) -> AsyncIterator[SqlPool]:
    observer = PoolMetrics(PoolFamilies(registry or CollectorRegistry()), "sql")
    pool = SqlPool(SqlPoolConfig(url=url, **config), observer)
    try:
        yield pool
    finally:
        await pool.close()


async def _one(pool: SqlPool, statement: str = "SELECT 1") -> Any:
    async with pool.begin() as connection:
        return (await connection.execute(text(statement))).scalar()


COUNT = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"


async def test_connections_are_opened_early_bounded_and_their_waits_measured(server: Postgres) -> None:
    registry = CollectorRegistry()
    async with pool_on(server.url, registry, n_open=3, max_connections=5) as pool:
        await pool.open()
        assert await _one(pool, COUNT) == 3
        assert await asyncio.gather(*(_one(pool) for _ in range(100))) == [1] * 100
        assert await _one(pool, COUNT) == 5
        assert registry.get_sample_value("tribar_pool_wait_seconds_count", {"pool": "sql"}) == 102


async def test_who_waits_too_long_is_told_and_the_next_gets_through(server: Postgres) -> None:
    registry = CollectorRegistry()
    async with pool_on(server.url, registry, max_connections=1, wait_timeout_s=0.1) as pool:
        async with pool.begin():
            with pytest.raises(Unavailable, match="all 1 connections") as caught:
                await _one(pool)
        assert (caught.value.code, caught.value.retry_after_s) == ("sql_pool_timeout", 1.0)
        assert await _one(pool) == 1
        labels = {"pool": "sql", "reason": "pool_timeout"}
        assert registry.get_sample_value("tribar_pool_failures_total", labels) == 1


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_a_server_that_goes_away_and_comes_back(server: Postgres, how: str) -> None:
    async with pool_on(server.url, n_open=4) as pool:
        await pool.open()
        asking = asyncio.create_task(_one(pool, "SELECT pg_sleep(60)"))
        async with asyncio.timeout(20):
            while await _one(pool, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'") != 1:
                pass
        getattr(server, how)()
        with pytest.raises(Unavailable, match="does not answer") as cut:
            await asking
        assert cut.value.code == "sql_unavailable"
        for _ in range(5):
            with pytest.raises(Unavailable):
                await _one(pool)
        server.start()
        assert await asyncio.gather(*(_one(pool) for _ in range(20))) == [1] * 20


async def test_a_wrong_statement_is_our_fault_and_leaves_the_connection_usable(server: Postgres) -> None:
    async with pool_on(server.url, max_connections=1) as pool:
        with pytest.raises(Internal, match="no_such_table"):
            await _one(pool, "SELECT * FROM no_such_table")
        assert await _one(pool) == 1


async def test_a_statement_that_takes_too_long(server: Postgres) -> None:
    async with pool_on(server.url, max_connections=1, answer_timeout_s=0.2) as pool:
        with pytest.raises(Unavailable):
            await _one(pool, "SELECT pg_sleep(60)")
        assert await _one(pool) == 1


async def test_a_password_is_not_shown() -> None:
    async with pool_on("postgresql://u:s3cret@127.0.0.1:1/x", connect_timeout_s=1) as pool:
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1") as caught:
            await pool.open()
        assert "s3cret" not in str(caught.value)


async def test_a_sqlite_file(tmp_path: Path) -> None:
    async with pool_on(str(tmp_path / "a.db"), n_open=2, max_connections=4) as pool:
        await pool.open()
        assert await asyncio.gather(*(_one(pool) for _ in range(20))) == [1] * 20
        assert await _one(pool, "PRAGMA journal_mode") == "wal"


@pytest.mark.parametrize("url", ["mysql://x/y", "://", "postgresql://h:port/x"])
def test_a_url_of_another_kind(url: str) -> None:
    with pytest.raises(InvalidRequest, match="usage_database"):
        SqlPool(SqlPoolConfig(url=url))


@pytest.mark.long
async def test_a_thousand_clients_on_a_hundred_connections_lose_nothing() -> None:
    """The server is killed and restarted twice meanwhile; every batch that was confirmed is there, once."""
    with postgres(max_connections=103) as server:
        record = await measure(server, n_clients=1000, n_connections=100, seconds=12, n_kills=2)
    assert record.n_added > 1000
    assert len(record.recoveries_s) == 2
    assert max(record.waits_s) < 5, "2 s for a place and 2 s to connect are the bounds, and a second of slack"
