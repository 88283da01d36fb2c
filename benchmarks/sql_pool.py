"""A pool of 100 connections to a real PostgreSQL under 1,000 clients, with the server killed and restarted meanwhile.

Each client adds batches to the usage ledger, one after the other, and tries each again under its id until it is told
that it is in: so what is in the table at the end must be exactly what the clients were told, nothing lost and nothing
twice. Prints batches a second, how long clients waited for a connection, how many were turned away, and how long it
took after the restart until a batch was in again.

    python -m benchmarks sql_pool [--clients 1000] [--connections 100] [--seconds 10] [--kills 1]
"""

import argparse
import asyncio
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from datetime import date

from tests.servers.postgres import Postgres, postgres

from tribar.core.errors import Unavailable
from tribar.core.usage import UsageCounts, UsageKey
from tribar.stores.sql import SqlPool, SqlPoolConfig
from tribar.stores.usage.sql import SqlUsageLedger

DAY = date(2026, 1, 1)
PAUSE_S = 0.2
"""How soon a client that was turned away tries again; a real one waits the second that ``Retry-After`` says."""


@dataclass
class Record:
    """What the clients saw. Implements ``PoolObserver``."""

    waits_s: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    n_added: int = 0
    is_added: asyncio.Event = field(default_factory=asyncio.Event)
    recoveries_s: list[float] = field(default_factory=list)

    def on_wait(self, wait_s: float) -> None:
        """A client has its connection."""
        self.waits_s.append(wait_s)

    def on_failure(self, reason: str) -> None:
        """One was turned away."""
        self.failures[reason] += 1


async def measure(server: Postgres, *, n_clients: int, n_connections: int, seconds: float, n_kills: int) -> Record:
    """The record of ``n_clients`` that add for ``seconds``. Raises where the table tells otherwise."""
    record = Record()
    pool = SqlPool(SqlPoolConfig(url=server.url, max_connections=n_connections, n_open=n_connections), record)
    ledger = SqlUsageLedger(pool)
    await pool.open()
    await ledger.add("first", {})
    end_s = time.monotonic() + seconds
    clients = [asyncio.create_task(_client(ledger, number, end_s, record)) for number in range(n_clients)]
    for i in range(n_kills):
        await asyncio.sleep(seconds * (i + 1) / (n_kills + 1) - seconds * i / (n_kills + 1))
        await _kill_and_restart(server, record)
    await asyncio.gather(*clients)
    n_written = sum([await _written(ledger, number) for number in range(n_clients)])
    await pool.close()
    assert n_written == record.n_added, f"{record.n_added} batches were confirmed, {n_written} are in the table"
    return record


async def _client(ledger: SqlUsageLedger, number: int, end_s: float, record: Record) -> None:
    key = UsageKey(DAY, f"tenant-{number}", "m")
    n = 0
    while time.monotonic() < end_s:
        await _add(ledger, f"{number}-{n}", key)
        n += 1
        record.n_added += 1
        record.is_added.set()


async def _add(ledger: SqlUsageLedger, batch_id: str, key: UsageKey) -> None:
    while True:
        try:
            await ledger.add(batch_id, {key: UsageCounts(1, 10, 20)})
        except Unavailable:
            await asyncio.sleep(PAUSE_S)
        else:
            return


async def _kill_and_restart(server: Postgres, record: Record) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
    restarted_s = time.monotonic()
    record.is_added.clear()  # nothing was added between the kill and now: there was no server
    await record.is_added.wait()
    record.recoveries_s.append(time.monotonic() - restarted_s)


async def _written(ledger: SqlUsageLedger, number: int) -> int:
    totals = await ledger.totals(f"tenant-{number}", DAY, DAY)
    return sum(counts.n_requests for counts in totals.values())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--kills", type=int, default=1)
    given = parser.parse_args()
    with postgres(max_connections=given.connections + 3) as server:  # three are kept for the administrator
        record = asyncio.run(
            measure(
                server,
                n_clients=given.clients,
                n_connections=given.connections,
                seconds=given.seconds,
                n_kills=given.kills,
            )
        )
    waits_ms = statistics.quantiles([wait_s * 1000 for wait_s in record.waits_s], n=100)
    recoveries = ", ".join(f"{recovery_s:.2f} s" for recovery_s in record.recoveries_s) or "none"
    print(f"{given.clients} clients on {given.connections} connections, {given.kills} kills of the server")
    print(f"batches: {record.n_added}, {record.n_added / given.seconds:.0f} a second; none lost, none twice")
    print(
        f"wait for a connection: p50 {waits_ms[49]:.0f} ms, p99 {waits_ms[98]:.0f} ms, max {max(record.waits_s):.2f} s"
    )
    print(f"turned away with 503 and tried again: {dict(record.failures) or 'nobody'}")
    print(f"first batch after a restart: {recoveries}", flush=True)


if __name__ == "__main__":
    main()
