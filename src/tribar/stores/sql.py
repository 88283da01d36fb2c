"""The connections to one SQL database (PostgreSQL, SQLite): bounded, opened before they are needed, waits measured.

This is the one place where SQLAlchemy's exceptions, and those of the drivers below it, become ours. A connection is
tried before it is handed out, so a server that was restarted in between costs nobody an error.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from tribar.core.errors import Internal, InvalidRequest, TribarError, Unavailable
from tribar.core.ports import Clock
from tribar.stores.pool_observer import PoolObserver, SilentPool

RETRY_AFTER_S = 1.0

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg", "postgres": "postgresql+asyncpg"}

_AWAY_STATES = ("08", "53", "57P")
"""SQLSTATE classes: connection lost, out of connections or memory, shutting down or starting up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlPoolConfig:
    """``url`` is ``postgresql://...``, ``sqlite:///...`` or the path of a SQLite file. ``n_open`` are opened at once.

    ``wait_timeout_s`` bounds the wait for a connection while all are in use, ``connect_timeout_s`` connecting,
    ``answer_timeout_s`` each statement.
    """

    url: str
    max_connections: int = 20
    n_open: int = 4
    wait_timeout_s: float = 2.0
    connect_timeout_s: float = 2.0
    answer_timeout_s: float = 10.0


class SqlPool:
    """See the module docstring. Owns its connections until ``close``."""

    def __init__(
        self, config: SqlPoolConfig, observer: PoolObserver | None = None, clock: Clock = time.monotonic
    ) -> None:
        """Connects to nothing yet. Raises ``InvalidRequest`` for a URL of another kind."""
        self._config = config
        self._observer = observer or SilentPool()
        self._clock = clock
        self._url = url_of(config.url)
        self._engine = _engine(self._url, config)

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._engine.dialect.name

    async def open(self) -> None:
        """Open the first connections. Raises ``Unavailable`` where the server is away: they can be opened later."""
        n_open = min(self._config.n_open, self._config.max_connections)
        with self._translating():
            connections = [self._engine.connect() for _ in range(n_open)]
            opened = await asyncio.gather(*(one.start() for one in connections), return_exceptions=True)
            for one in opened:
                if isinstance(one, AsyncConnection):
                    await one.close()
            for one in opened:
                if isinstance(one, BaseException):
                    raise one

    async def close(self) -> None:
        """Close every connection that is not in use. Idempotent."""
        await self._engine.dispose()

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[AsyncConnection]:
        """A connection for one transaction, committed at the end of the block, rolled back on any exception.

        Raises ``Unavailable`` (with ``retry_after_s``) where none becomes free in time, or where the server is away or
        does not answer in time; then it is not known whether the transaction was committed. ``Internal`` for the rest.
        """
        since_s = self._clock()
        with self._translating():
            async with self._engine.connect() as connection:
                self._observer.on_wait(self._clock() - since_s)
                async with connection.begin():
                    yield connection

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except TribarError:
            raise
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            raise self._translated(error) from error
        except Exception as error:
            if not hasattr(error, "sqlstate"):  # a driver's own, from before SQLAlchemy had a connection
                raise
            raise self._translated(error) from error

    def _translated(self, error: Exception) -> TribarError:
        where = self._url.render_as_string(hide_password=True)
        if isinstance(error, PoolTimeout):
            self._observer.on_failure("pool_timeout")
            message = f"all {self._config.max_connections} connections to the database {where} are in use"
            return Unavailable(message, code="sql_pool_timeout", retry_after_s=RETRY_AFTER_S)
        if _is_away(error):
            self._observer.on_failure("away")
            cause = getattr(error, "orig", None) or error
            message = f"the database {where} does not answer: {cause}"
            return Unavailable(message, code="sql_unavailable", retry_after_s=RETRY_AFTER_S)
        return Internal(f"the database {where} refused a statement: {error}")


def url_of(text: str) -> URL:
    """The address with the driver that we use. Raises ``InvalidRequest``."""
    try:
        url = make_url(text) if "://" in text else URL.create("sqlite", database=text)
    except (ArgumentError, ValueError) as error:
        raise InvalidRequest(f"usage_database: {error}", param="usage_database") from error
    driver = _DRIVERS.get(url.drivername)
    if driver is None:
        message = f"usage_database: {url.drivername}:// is not supported: use postgresql://, sqlite:/// or a file"
        raise InvalidRequest(message, param="usage_database")
    return url.set(drivername=driver)


def _engine(url: URL, config: SqlPoolConfig) -> AsyncEngine:
    is_sqlite = url.get_backend_name() == "sqlite"
    arguments: dict[str, Any] = {"timeout": config.connect_timeout_s}
    if not is_sqlite:
        arguments["command_timeout"] = config.answer_timeout_s
    engine = create_async_engine(
        url,
        pool_size=config.max_connections,
        max_overflow=0,
        pool_timeout=config.wait_timeout_s,
        pool_pre_ping=not is_sqlite,
        connect_args=arguments,
    )
    if is_sqlite:
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
    return engine


def _prepare_sqlite(connection: Any, _: object) -> None:  # noqa: ANN401
    """Readers beside a writer, and writers that wait for each other."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=5000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _is_away(error: Exception) -> bool:
    if isinstance(error, OSError | TimeoutError):
        return True
    if isinstance(error, DBAPIError) and (error.connection_invalidated or isinstance(error.orig, OSError)):
        return True
    state = getattr(error, "sqlstate", None) or getattr(getattr(error, "orig", None), "sqlstate", None) or ""
    return state.startswith(_AWAY_STATES) or "locked" in str(getattr(error, "orig", ""))
