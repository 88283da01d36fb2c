"""The connections to one Redis (or Valkey): bounded, opened before they are needed, their waits measured.

This is the one place where redis-py's exceptions become ours. Nothing is tried twice: a command that was cut off may
have been carried out, and only the caller knows whether it may be again. A server that went away costs each caller a
clear ``Unavailable``; once it is back, the next caller connects anew.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import redis.asyncio
from redis import exceptions
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tribar.core.errors import Internal, InvalidRequest, Overloaded, TribarError, Unavailable
from tribar.core.ports import Clock
from tribar.stores.pool_observer import PoolObserver, SilentPool

RETRY_AFTER_S = 1.0

_AWAY = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    OSError,
    exceptions.BusyLoadingError,
    exceptions.MasterDownError,
    exceptions.ReadOnlyError,
)
"""Nothing answers, or what answers is loading its data, has lost its master, or is a replica now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisPoolConfig:
    """``url`` is ``redis://``, ``rediss://`` or ``unix://``. ``n_open`` connections are opened at the start.

    ``wait_timeout_s`` bounds the wait for a connection while all are in use, ``connect_timeout_s`` connecting, and
    ``answer_timeout_s`` the wait for an answer; commands that block at the server need a pool with a longer one.
    """

    url: str
    max_connections: int = 64
    n_open: int = 4
    wait_timeout_s: float = 1.0
    connect_timeout_s: float = 1.0
    answer_timeout_s: float = 2.0


class RedisPool:
    """See the module docstring. Made on the event loop that uses it; owns its connections until ``close``."""

    def __init__(
        self, config: RedisPoolConfig, observer: PoolObserver | None = None, clock: Clock = time.monotonic
    ) -> None:
        """Connects to nothing yet. Raises ``InvalidRequest`` for a URL of another kind."""
        self._config = config
        self._observer = observer or SilentPool()
        self._pool = _pool_of(config, self._observer, clock)
        self._redis = redis.asyncio.Redis(connection_pool=self._pool)

    async def open(self) -> None:
        """Open the first connections. Raises ``Unavailable`` where the server is away: they can be opened later."""
        n_open = min(self._config.n_open, self._config.max_connections)
        with self.client():
            opened = await asyncio.gather(*(self._pool.get_connection() for _ in range(n_open)), return_exceptions=True)
            for one in opened:
                if not isinstance(one, BaseException):
                    await self._pool.release(one)
            for one in opened:
                if isinstance(one, BaseException):
                    raise one

    async def close(self) -> None:
        """Close every connection. Idempotent."""
        with suppress(*_AWAY):
            await self._pool.disconnect()

    @contextmanager
    def client(self) -> Iterator[redis.asyncio.Redis]:
        """The client, for the commands of the ``with`` block.

        Raises ``Unavailable`` (with ``retry_after_s``) where no connection becomes free in time, where the server is
        away, loading or a replica, and where it does not answer in time; ``Overloaded`` where its memory is full;
        ``Internal`` for the rest (wrong password, wrong type of a key).
        """
        try:
            yield self._redis
        except (exceptions.RedisError, OSError) as error:
            ours = self._translated(error)
            raise ours from error

    def _translated(self, error: Exception) -> TribarError:
        where = _shown(self._config.url)
        if isinstance(error, _NoFreeConnection):
            self._observer.on_failure("pool_timeout")
            message = f"all {self._config.max_connections} connections to Redis at {where} are in use"
            return Unavailable(message, code="redis_pool_timeout", retry_after_s=RETRY_AFTER_S)
        if isinstance(
            error, exceptions.AuthenticationError
        ):  # a kind of exceptions.ConnectionError, but waiting does not help
            return Internal(f"Redis at {where} refuses the user or the password")
        if isinstance(error, _AWAY):
            self._observer.on_failure("away")
            return Unavailable(
                f"Redis at {where} does not answer: {error}", code="redis_unavailable", retry_after_s=RETRY_AFTER_S
            )
        if isinstance(error, exceptions.OutOfMemoryError):
            return Overloaded(f"the memory of Redis at {where} is full", code="redis_full", retry_after_s=RETRY_AFTER_S)
        return Internal(f"Redis at {where} refused a command: {error}")


class _NoFreeConnection(exceptions.ConnectionError):
    """None became free in time."""


class _MeasuredPool(redis.asyncio.BlockingConnectionPool):
    """Tells how long each caller waited, and which of them waited in vain."""

    observer: PoolObserver
    clock: Clock

    async def get_connection(self, *_: object, **__: object) -> AbstractConnection:
        since_s = self.clock()
        try:
            connection: AbstractConnection = await super().get_connection()  # type: ignore[no-untyped-call]
        except exceptions.ConnectionError as error:
            if isinstance(error.__cause__, asyncio.TimeoutError):  # of the wait; connecting raises redis' own
                raise _NoFreeConnection(str(error)) from error
            raise
        self.observer.on_wait(self.clock() - since_s)
        return connection


def _pool_of(config: RedisPoolConfig, observer: PoolObserver, clock: Clock) -> _MeasuredPool:
    try:
        pool = _MeasuredPool.from_url(
            config.url,
            max_connections=config.max_connections,
            timeout=config.wait_timeout_s,
            socket_timeout=config.answer_timeout_s,
            socket_connect_timeout=config.connect_timeout_s,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
        )
    except ValueError as error:
        raise InvalidRequest(f"redis_url: {error}", param="redis_url") from error
    pool.observer, pool.clock = observer, clock
    return pool


def _shown(url: str) -> str:
    """The address without user and password."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or 6379}" if parts.hostname else parts.path
