"""The contract of the ``KeyValueStore`` port; a new implementation joins ``STORES``."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager

import pytest
from tests.servers.valkey import Valkey, valkey

from tribar.core.ports import KeyValueStore
from tribar.stores.memory_keyvalue import MemoryKeyValueStore
from tribar.stores.redis_keyvalue import RedisKeyValueStore
from tribar.stores.redis_pool import RedisPool, RedisPoolConfig

TTL_S = 1000.0


@pytest.fixture(scope="module")
def server() -> Iterator[Valkey]:
    with valkey() as server:
        yield server


@contextlib.asynccontextmanager
async def _memory(_: Valkey) -> AsyncIterator[KeyValueStore]:
    yield MemoryKeyValueStore(1 << 20, 1000)


@contextlib.asynccontextmanager
async def _redis(server: Valkey) -> AsyncIterator[KeyValueStore]:
    patient = RedisPoolConfig(url=server.url, wait_timeout_s=20.0, connect_timeout_s=20.0, answer_timeout_s=20.0)
    pool = RedisPool(patient)  # it is not about time: a busy machine fails nothing
    other = RedisKeyValueStore(pool, "other[*]:")
    await other.put("a", b"not ours", TTL_S)
    try:
        yield RedisKeyValueStore(pool, "ours[*]:")
        assert await other.get(["a"]) == [b"not ours"]
        with pool.client() as redis:
            await redis.flushall()
    finally:
        await pool.close()


STORES: dict[str, Callable[[Valkey], AbstractAsyncContextManager[KeyValueStore]]] = {
    "memory": _memory,
    "redis": _redis,
}


@pytest.fixture(params=STORES)
async def store(request: pytest.FixtureRequest, server: Valkey) -> AsyncIterator[KeyValueStore]:
    async with STORES[request.param](server) as made:
        yield made


async def test_values_come_in_the_order_of_the_keys(store: KeyValueStore) -> None:
    assert list(await store.get([])) == []
    await store.put("a", b"1", TTL_S)
    await store.put("b", b"\x00\xff", TTL_S)
    await store.put("a", b"", TTL_S)
    assert list(await store.get(["b", "none", "a", "b"])) == [b"\x00\xff", None, b"", b"\x00\xff"]


async def test_put_if_absent_tells_what_is_there(store: KeyValueStore) -> None:
    assert await store.put_if_absent("a", b"1", TTL_S) == b"1"
    assert await store.put_if_absent("a", b"2", TTL_S) == b"1"
    await store.delete(["a"])
    assert await store.put_if_absent("a", b"3", TTL_S) == b"3"


async def test_delete_counts_what_was_there(store: KeyValueStore) -> None:
    await store.put("a", b"1", TTL_S)
    await store.put("b", b"1", TTL_S)
    assert await store.delete([]) == 0
    assert await store.delete(["a", "none"]) == 1
    assert await store.delete(["a"]) == 0
    assert list(await store.get(["a", "b"])) == [None, b"1"]


async def test_keys_by_prefix(store: KeyValueStore) -> None:
    """A prefix is literal, whatever it means in a pattern."""
    for key in ("a:1", "a:2", "a*:3", "b:4"):
        await store.put(key, b"x", TTL_S)
    assert {key async for key in store.keys("a:")} == {"a:1", "a:2"}
    assert {key async for key in store.keys("a*")} == {"a*:3"}
    assert {key async for key in store.keys("")} == {"a:1", "a:2", "a*:3", "b:4"}
