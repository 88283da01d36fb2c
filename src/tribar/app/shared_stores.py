"""The stores of one front end that its parts share: connections to Redis and to SQL, where there are any."""

import importlib
import logging
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry

from tribar.app.config import StoresConfig
from tribar.core.errors import InvalidRequest, Unavailable
from tribar.core.ports import UsageLedger
from tribar.stores.pool_observer import PoolObserver
from tribar.telemetry.pools import PoolFamilies, PoolMetrics

if TYPE_CHECKING:
    from tribar.stores.redis_pool import RedisPool
    from tribar.stores.sql import SqlPool

_log = logging.getLogger(__name__)


class SharedStores:
    """Opened before the first request, closed after the last one."""

    def __init__(self, config: StoresConfig, registry: CollectorRegistry) -> None:
        """Connects to nothing yet. Raises ``InvalidRequest`` for a bad URL, or where an extra is not installed."""
        self._config = config
        self._families = PoolFamilies(registry)
        self.redis = None if config.redis_url is None else self._redis(config.redis_url)
        self._sql = None if config.usage_database is None else self._sql_pool(config.usage_database)

    async def open(self) -> None:
        """Open the first connections. A store that is away stops nothing: it is looked for whenever it is needed."""
        for pool in (self.redis, self._sql):
            try:
                if pool is not None:
                    await pool.open()
            except Unavailable as error:
                _log.warning("%s; the server starts without it", error.message)

    async def close(self) -> None:
        """Close all connections."""
        for pool in (self.redis, self._sql):
            if pool is not None:
                await pool.close()

    def usage_ledger(self) -> UsageLedger | None:
        """Where use is written down; None where it is not."""
        if self._sql is None:
            return None
        from tribar.stores.usage.sql import SqlUsageLedger

        return SqlUsageLedger(self._sql)

    def observer(self, pool: str) -> PoolObserver:
        """Where the pool of that name tells its waits."""
        return PoolMetrics(self._families, pool)

    def _redis(self, url: str) -> "RedisPool":
        _require("redis", "redis", "redis_url")
        from tribar.stores.redis_pool import RedisPool, RedisPoolConfig

        return RedisPool(
            RedisPoolConfig(url=url, max_connections=self._config.redis_max_connections), self.observer("redis")
        )

    def _sql_pool(self, url: str) -> "SqlPool":
        for module in ("sqlalchemy", "asyncpg" if url.startswith("postgres") else "aiosqlite"):
            _require(module, "sql", "usage_database")
        from tribar.stores.sql import SqlPool, SqlPoolConfig

        config = SqlPoolConfig(url=url, max_connections=self._config.sql_max_connections)
        return SqlPool(config, self.observer("sql"))


def required_redis_url(config: StoresConfig, what: str) -> str:
    """Where Redis is. Raises ``InvalidRequest`` where nobody says so, or the extra is not installed."""
    if config.redis_url is None:
        raise InvalidRequest(f"{what} needs --redis-url\ntry: --redis-url redis://HOST:6379/0", param="redis_url")
    for module in ("redis", "hiredis"):
        _require(module, "redis", "redis_url")
    return config.redis_url


def _require(module: str, extra: str, param: str) -> None:
    """Raise ``InvalidRequest`` saying how to install ``module`` where it is not."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        message = f"{param} needs the package {module}: pip install 'tribar[{extra}]'"
        raise InvalidRequest(message, param=param) from error
