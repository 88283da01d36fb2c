"""The ledger in SQL: one row a day, tenant and model, and the ids of the batches that have been added.

The tables are made where they are missing; a later version that changes them brings its migration.
"""

import time
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from sqlalchemy import BigInteger, Column, Date, MetaData, String, Table, delete, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from tribar.core.usage import UsageCounts, UsageKey
from tribar.stores.sql import SqlPool

BATCH_MEMORY_S = 7 * 86400
"""How long a batch is known to have been added; nobody tries one again that long."""

PRUNE_INTERVAL_S = 3600

_LOCK = 0x7472696261720001
"""PostgreSQL's advisory lock under which one of several starting gateways makes the tables."""

_metadata = MetaData()

USAGE = Table(
    "tribar_usage",
    _metadata,
    Column("day", Date, primary_key=True),
    Column("tenant", String(64), primary_key=True),
    Column("model", String(256), primary_key=True),
    Column("n_requests", BigInteger, nullable=False),
    Column("n_prompt_tokens", BigInteger, nullable=False),
    Column("n_completion_tokens", BigInteger, nullable=False),
)

BATCHES = Table(
    "tribar_usage_batches",
    _metadata,
    Column("id", String(64), primary_key=True),
    Column("added_s", BigInteger, nullable=False, index=True),
)

_COUNTS = ("n_requests", "n_prompt_tokens", "n_completion_tokens")


class SqlUsageLedger:
    """Implements ``UsageLedger``. Raises what ``SqlPool.begin`` raises."""

    def __init__(self, pool: SqlPool, clock: Callable[[], float] = time.time) -> None:
        self._pool = pool
        self._clock = clock
        self._has_tables = False
        self._prune_at_s = 0
        self._insert: Callable[[Table], Any] = sqlite.insert if pool.dialect == "sqlite" else postgresql.insert

    async def add(self, batch_id: str, counts: Mapping[UsageKey, UsageCounts]) -> None:
        """See ``UsageLedger``. Rows are written in the order of their keys, so that two gateways cannot deadlock."""
        await self._make_tables()
        now_s = int(self._clock())
        async with self._pool.begin() as connection:
            mark = self._insert(BATCHES).values(id=batch_id, added_s=now_s).on_conflict_do_nothing()
            if (await connection.execute(mark)).rowcount == 0:
                return
            if now_s >= self._prune_at_s:
                await connection.execute(delete(BATCHES).where(BATCHES.c.added_s < now_s - BATCH_MEMORY_S))
                self._prune_at_s = now_s + PRUNE_INTERVAL_S
            if counts:
                rows = [_row(key, counts[key]) for key in sorted(counts)]
                insert = self._insert(USAGE)
                sums = {name: USAGE.c[name] + insert.excluded[name] for name in _COUNTS}
                upsert = insert.on_conflict_do_update(index_elements=["day", "tenant", "model"], set_=sums)
                await connection.execute(upsert, rows)

    async def totals(self, tenant: str, first: date, last: date) -> Mapping[UsageKey, UsageCounts]:
        """See ``UsageLedger``."""
        await self._make_tables()
        query = select(USAGE).where(USAGE.c.tenant == tenant, USAGE.c.day.between(first, last))
        async with self._pool.begin() as connection:
            rows = (await connection.execute(query.order_by(USAGE.c.day, USAGE.c.model))).all()
        return {
            UsageKey(row.day, row.tenant, row.model): UsageCounts(*(getattr(row, c) for c in _COUNTS)) for row in rows
        }

    async def _make_tables(self) -> None:
        if not self._has_tables:
            async with self._pool.begin() as connection:
                await self._lock(connection)
                await connection.run_sync(_metadata.create_all)
            self._has_tables = True

    async def _lock(self, connection: AsyncConnection) -> None:
        if self._pool.dialect == "postgresql":
            await connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        else:
            await connection.execute(text("BEGIN IMMEDIATE"))


def _row(key: UsageKey, counts: UsageCounts) -> dict[str, object]:
    counted = {name: getattr(counts, name) for name in _COUNTS}
    return {"day": key.day, "tenant": key.tenant, "model": key.model, **counted}
