"""The stores of one front end that its parts share: connections to Redis, if there is one."""

import importlib
import logging
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from tribar.app.config import StoresConfig
from tribar.core.errors import InvalidRequest, Unavailable
from tribar.stores.pool_observer import PoolObserver
from tribar.telemetry.pools import PoolFamilies, PoolMetrics

if TYPE_CHECKING:
    from tribar.stores.redis_pool import RedisPool

_log = logging.getLogger(__name__)


class SharedStores:
    """Opened before the first request, closed after the last one."""

    def __init__(self, config: StoresConfig, registry: CollectorRegistry) -> None:
        """Connects to nothing yet. Raises ``InvalidRequest`` for a bad URL, or where an extra is not installed."""
        self._config = config
        self._families = PoolFamilies(registry)
        self.redis = None if config.redis_url is None else self._redis(config.redis_url)

    async def open(self) -> None:
        """Open the first connections. A Redis that is away stops nothing: it is looked for with each request."""
        if self.redis is not None:
            try:
                await self.redis.open()
            except Unavailable as error:
                _log.warning("%s; the server starts without it", error.message)

    async def close(self) -> None:
        """Close all connections."""
        if self.redis is not None:
            await self.redis.close()

    def observer(self, pool: str) -> PoolObserver:
        """Where the pool of that name tells its waits."""
        return PoolMetrics(self._families, pool)

    def _redis(self, url: str) -> "RedisPool":
        _require("redis", "redis", "redis_url")
        from tribar.stores.redis_pool import RedisPool, RedisPoolConfig

        return RedisPool(
            RedisPoolConfig(url=url, max_connections=self._config.redis_max_connections), self.observer("redis")
        )


def _require(module: str, extra: str, param: str) -> None:
    """Raise ``InvalidRequest`` saying how to install ``module`` where it is not."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f"{param} needs the package {module}: pip install 'tribar[{extra}]'"
        raise InvalidRequest(message, param=param) from error
