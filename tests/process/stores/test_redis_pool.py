"""The pool on a real Valkey that is killed, frozen, filled and restarted under it."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.servers.valkey import Valkey, valkey

from tribar.core.errors import Internal, InvalidRequest, Overloaded, TribarError, Unavailable
from tribar.stores.redis_pool import RedisPool, RedisPoolConfig
from tribar.telemetry.pools import PoolFamilies, PoolMetrics


@pytest.fixture
def server() -> Iterator[Valkey]:
    with valkey() as running:
        yield running


@asynccontextmanager
async def pool_on(url: str, registry: CollectorRegistry | None = None, **config: Any) -> AsyncIterator[RedisPool]:
    observer = PoolMetrics(PoolFamilies(registry or CollectorRegistry()), "redis")
    pool = RedisPool(RedisPoolConfig(url=url, **config), observer)
    try:
        yield pool
    finally:
        await pool.close()


async def _increment(pool: RedisPool) -> int:
    with pool.client() as redis:
        return int(await redis.incr("n"))


async def _n_clients(pool: RedisPool) -> int:
    with pool.client() as redis:
        return len(await redis.client_list())


async def _fill(pool: RedisPool) -> None:
    with pool.client() as redis:
        for i in range(64):
            await redis.set(f"k{i}", b"x" * 100_000)


@pytest.mark.parametrize("address", ["url", "tcp_url"])
async def test_connections_are_opened_before_they_are_needed_and_bounded(server: Valkey, address: str) -> None:
    registry = CollectorRegistry()
    async with pool_on(getattr(server, address), registry, n_open=3, max_connections=5) as pool:
        await pool.open()
        assert await _n_clients(pool) == 3
        assert sorted(await asyncio.gather(*(_increment(pool) for _ in range(200)))) == list(range(1, 201))
        assert await _n_clients(pool) == 5
        assert registry.get_sample_value("tribar_pool_wait_seconds_count", {"pool": "redis"}) == 3 + 1 + 200 + 1


async def test_a_killed_server_is_a_503_and_a_restarted_one_needs_nothing(server: Valkey) -> None:
    registry = CollectorRegistry()
    async with pool_on(server.url, registry, n_open=4) as pool:
        await pool.open()
        server.kill()
        for _ in range(10):
            with pytest.raises(Unavailable, match="does not answer") as caught:
                await _increment(pool)
            assert caught.value.retry_after_s == 1.0
        server.start()
        assert sorted(await asyncio.gather(*(_increment(pool) for _ in range(4)))) == [1, 2, 3, 4]
        labels = {"pool": "redis", "reason": "away"}
        assert registry.get_sample_value("tribar_pool_failures_total", labels) == 10


async def test_a_server_that_comes_later(server: Valkey) -> None:
    server.stop()
    async with pool_on(server.tcp_url) as pool:
        with pytest.raises(Unavailable):
            await pool.open()
        server.start()
        await pool.open()
        assert await _increment(pool) == 1


async def test_a_server_that_hangs_is_a_503_in_bounded_time(server: Valkey) -> None:
    """Commands that hold every connection are refused by their own time, those that wait for one by theirs."""
    sizes: dict[str, Any] = {"n_open": 2, "max_connections": 2}
    async with pool_on(server.url, answer_timeout_s=0.3, wait_timeout_s=0.1, **sizes) as pool:
        await pool.open()
        server.freeze()
        async with asyncio.timeout(5):
            errors = await asyncio.gather(*(_increment(pool) for _ in range(20)), return_exceptions=True)
        codes = [error.code for error in errors if isinstance(error, TribarError)]
        assert codes == ["redis_unavailable"] * 2 + ["redis_pool_timeout"] * 18
        server.thaw()
        assert await _increment(pool) >= 1


async def test_a_cancelled_command_leaves_no_answer_for_the_next(server: Valkey) -> None:
    async with pool_on(server.url, n_open=1, max_connections=1) as pool:
        await pool.open()
        for _ in range(50):
            task = asyncio.create_task(_increment(pool))
            for _ in range(4):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            with pool.client() as redis:
                assert await redis.echo("mine") == b"mine"


async def test_full_memory_and_a_wrong_command() -> None:
    with valkey("--maxmemory", "3mb", "--maxmemory-policy", "noeviction") as server:
        async with pool_on(server.url) as pool:
            with pytest.raises(Overloaded, match="memory") as full:
                await _fill(pool)
            assert (full.value.code, full.value.retry_after_s) == ("redis_full", 1.0)
            with pytest.raises(Internal, match="WRONGTYPE"), pool.client() as redis:
                await redis.lpush("k0", "x")


async def test_a_wrong_password_is_told_without_it(server: Valkey) -> None:
    async with pool_on(f"redis://:s3cret@127.0.0.1:{server.port}") as pool:
        with pytest.raises(Internal, match="password") as caught:
            await pool.open()
        assert "s3cret" not in str(caught.value)


def test_a_url_of_another_kind() -> None:
    with pytest.raises(InvalidRequest, match="redis_url"):
        RedisPool(RedisPoolConfig(url="http://x"))
