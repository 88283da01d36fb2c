"""Values in Redis (or Valkey), shared by every front end that uses the same server and namespace."""

import re
from collections.abc import AsyncIterator, Sequence
from typing import cast

from tribar.stores.redis_pool import RedisPool

_SCAN_COUNT = 1000


class RedisKeyValueStore:
    """Implements ``KeyValueStore``. ``namespace`` comes before every key.

    How much is kept is Redis' own setting: ``maxmemory``, with a policy that evicts keys which expire
    (``volatile-lru``, ``allkeys-lru``). Without one, a full server refuses to store, which ``put`` raises.
    """

    def __init__(self, pool: RedisPool, namespace: str) -> None:
        """``pool`` stays the caller's."""
        self._pool = pool
        self._namespace = namespace

    async def get(self, keys: Sequence[str]) -> Sequence[bytes | None]:
        """See ``KeyValueStore``."""
        if not keys:
            return []
        with self._pool.client() as redis:
            return cast("list[bytes | None]", await redis.mget(self._names(keys)))

    async def put(self, key: str, value: bytes, ttl_s: float) -> None:
        """See ``KeyValueStore``."""
        with self._pool.client() as redis:
            await redis.set(self._namespace + key, value, px=_milliseconds(ttl_s))

    async def put_if_absent(self, key: str, value: bytes, ttl_s: float) -> bytes:
        """See ``KeyValueStore``."""
        name, ttl_ms = self._namespace + key, _milliseconds(ttl_s)
        with self._pool.client() as redis:
            # One transaction: with the value gone between two commands there would be none to return.
            async with redis.pipeline(transaction=True) as pipeline:
                pipeline.set(name, value, px=ttl_ms, nx=True)
                pipeline.get(name)
                pipeline.pexpire(name, ttl_ms)
                _, kept, _ = await pipeline.execute()
        return bytes(kept)

    async def delete(self, keys: Sequence[str]) -> int:
        """See ``KeyValueStore``."""
        if not keys:
            return 0
        with self._pool.client() as redis:
            return int(await redis.unlink(*self._names(keys)))

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        """See ``KeyValueStore``."""
        pattern = _literal(self._namespace + prefix) + "*"
        with self._pool.client() as redis:
            async for name in redis.scan_iter(match=pattern, count=_SCAN_COUNT):
                yield name.decode().removeprefix(self._namespace)

    def _names(self, keys: Sequence[str]) -> list[str]:
        return [self._namespace + key for key in keys]


def _milliseconds(ttl_s: float) -> int:
    return max(1, round(ttl_s * 1000))


def _literal(text: str) -> str:
    r"""``text`` in a pattern of SCAN, where ``*?[]^\`` mean something."""
    return re.sub(r"([*?\[\]^\\])", r"\\\1", text)
