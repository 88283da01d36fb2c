"""A pool of engines as a part of the front end: from the tables of the settings to models that can be asked."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from prometheus_client import CollectorRegistry

from tribar.app.config import PoolConfig
from tribar.app.files import read_toml
from tribar.app.pool_tables import PoolTables, UpstreamTable, api_key, model_routes, take_pool_tables
from tribar.core.errors import InvalidRequest
from tribar.core.ports import TextGenerator
from tribar.gateway.breaker import BreakerPolicy
from tribar.gateway.catalog import ServedModel
from tribar.gateway.pool.config import PoolPolicy
from tribar.gateway.pool.health import HealthChecks
from tribar.gateway.pool.model import PooledModel
from tribar.gateway.pool.pool import Placed, Pool, PoolPlan
from tribar.gateway.router import Routing, RoutingPolicy, Target
from tribar.gateway.upstream.base import Upstream
from tribar.gateway.upstream.cache_salt import CacheSalt
from tribar.gateway.upstream.local import LocalUpstream
from tribar.gateway.upstream.openai.upstream import OpenAiUpstream, OpenAiUpstreamConfig
from tribar.telemetry.upstreams import UpstreamMetrics, UpstreamStates

_log = logging.getLogger(__name__)


class HostedPool:
    """Implements ``Hosted``. ``engine`` is the server's own, by its name, where there is one."""

    def __init__(
        self,
        config: PoolConfig,
        tables: PoolTables,
        registry: CollectorRegistry,
        engine: tuple[str, TextGenerator] | None,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        """Raises ``InvalidRequest`` naming the table that is wrong."""
        self._engine = engine
        self._environ = environ
        self._salt = CacheSalt()
        self._grace_s = 0.0
        self._made: dict[UpstreamTable, Upstream] = {}
        self._served: dict[tuple[str, str], ServedModel] = {}
        self._retiring: set[asyncio.Task[None]] = set()
        self._pool = Pool(pool_policy(config), observer=UpstreamMetrics(registry))
        UpstreamStates(registry, self._pool.states, lambda: self._pool.n_waiting)
        self._tables = tables
        self._plan = self._planned(tables)
        self._pool.install(self._plan)

    @property
    def takes_engine(self) -> bool:
        """Whether the server's own engine is in the pool, rather than beside it."""
        return self._tables.has_engine

    def served(self) -> dict[str, ServedModel]:
        """Every model and alias; those that were there before are the same objects."""
        names = {model: model for model in self._plan.models} | dict(self._tables.aliases)
        self._served = {
            (name, model): self._served.get((name, model)) or ServedModel(PooledModel(self._pool, model, name))
            for name, model in names.items()
        }
        return {name: served for (name, _), served in self._served.items()}

    def summary(self) -> dict[str, str]:
        """What the operator is told once it serves, by label."""
        states = self._pool.states()
        down = [state.name for state in states if not state.is_up]
        told = f", not yet {', '.join(down)}" if down else ""
        return {
            "pool": f"{len(states) - len(down)} of {len(states)} upstreams{told}",
            "serves": ", ".join(self.served()),
        }

    async def start(self) -> None:
        """Open every upstream and ask it once whether it serves. One that does not stops nothing."""
        await self._pool.admit()

    async def run(self) -> None:
        """Check upstreams until cancelled."""
        await HealthChecks(self._pool).run()

    async def stop(self, grace_s: float) -> None:
        """Open requests get ``grace_s``; then their connections are closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                await self._pool.until_idle()
        for task in self._retiring:
            task.cancel()
        await self._pool.close()

    async def reload(self, grace_s: float) -> bool:
        """Read the file again; whether it could be used. One that cannot changes nothing and is logged.

        Upstreams whose tables are as they were go on untouched, the requests at those that are gone get ``grace_s``.
        """
        path = self._tables.path
        assert path is not None, "a pool comes from a file"
        try:
            tables = take_pool_tables(await asyncio.to_thread(read_toml, path, "config"), path)
            if tables.has_engine != self._tables.has_engine:
                raise InvalidRequest(f"{path}: the own engine joins or leaves the pool with a restart only")
            plan = self._planned(tables)
        except InvalidRequest as error:
            _log.error("the upstreams stay as they were: %s", error.message)
            return False
        self._tables, self._plan = tables, plan
        gone = self._pool.install(plan)
        await self._pool.admit()
        for upstream in gone:
            task = asyncio.create_task(_retire(upstream, grace_s))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)
        _log.info("%d upstreams serve %s", len(plan.upstreams), ", ".join(self.served()) or "nothing")
        return True

    def _planned(self, tables: PoolTables) -> PoolPlan:
        named = replace(tables, upstreams=tuple(map(self._named, tables.upstreams)))
        models = model_routes(named)
        if self._engine is not None and not tables.has_engine and self._engine[0] in {*models, *tables.aliases}:
            raise InvalidRequest(
                f"the own engine and the pool both serve {self._engine[0]!r}: give it another --served-model-name, or "
                'make it an upstream of the pool (kind = "engine")',
                param="upstream",
            )
        made = {table: self._made.get(table) or self._make(table) for table in named.upstreams}
        self._made = made
        placed = {
            table.name: Placed(upstream, Target(table.weight, table.max_outstanding))
            for table, upstream in made.items()
        }
        return PoolPlan(placed, models)

    def _named(self, table: UpstreamTable) -> UpstreamTable:
        """The own engine serves under its name where its table has none."""
        if table.kind == "engine" and self._engine is not None and not table.model:
            return replace(table, model=self._engine[0])
        return table

    def _make(self, table: UpstreamTable) -> Upstream:
        if table.kind == "engine":
            assert self._engine is not None, "a pool with an engine has one"
            return LocalUpstream(self._engine[1])
        return MAKERS[table.kind](table, api_key(table, self._environ), self._salt)


async def _retire(upstream: Upstream, grace_s: float) -> None:
    """Requests at an upstream that is gone may end."""
    try:
        await asyncio.sleep(grace_s)
    finally:
        await upstream.close()


def pool_policy(config: PoolConfig) -> PoolPolicy:
    """What ``config`` means for the pool."""
    return PoolPolicy(
        routing=RoutingPolicy(Routing(config.routing), config.load_bound),
        breaker=BreakerPolicy(
            max_failures=config.max_failures,
            max_error_share=config.max_error_percent / 100,
            slow_ttft_s=config.slow_ttft_s,
            first_pause_s=config.first_pause_s,
        ),
        retry_share=config.retry_percent / 100,
        max_attempts=config.max_attempts,
        wait_timeout_s=config.wait_timeout_s,
        check_interval_s=config.check_interval_s,
        check_timeout_s=config.check_timeout_s,
    )


def _openai(table: UpstreamTable, key: str, salt: CacheSalt) -> Upstream:
    config = OpenAiUpstreamConfig(
        name=table.name,
        url=table.url,
        model=table.model,
        dialect=table.dialect,
        api_key=key,
        max_model_len=table.max_model_len,
        has_chat_template=table.has_chat_template,
        max_connections=table.max_outstanding + 1,  # one for the checks
        n_preopened=min(table.n_preopened, table.max_outstanding),
        connect_timeout_s=table.connect_timeout_s,
        first_token_timeout_s=table.first_token_timeout_s,
        idle_timeout_s=table.idle_timeout_s,
    )
    return OpenAiUpstream(config, salt)


def _kserve(table: UpstreamTable, key: str, salt: CacheSalt) -> Upstream:
    try:
        from tribar.gateway.upstream.kserve.upstream import KServeUpstream, KServeUpstreamConfig
    except ModuleNotFoundError as error:
        message = f"{table.place} needs {error.name}\ntry: pip install 'tribar[models]'"
        raise InvalidRequest(message, param="kind") from error
    config = KServeUpstreamConfig(
        name=table.name,
        url=table.url,
        model=table.model,
        api_key=key,
        max_model_len=table.max_model_len,
        n_channels=max(1, table.n_preopened),
        connect_timeout_s=table.connect_timeout_s,
        first_token_timeout_s=table.first_token_timeout_s,
        idle_timeout_s=table.idle_timeout_s,
    )
    return KServeUpstream(config)


MAKERS: Mapping[str, Callable[[UpstreamTable, str, CacheSalt], Upstream]] = {"openai": _openai, "kserve": _kserve}
"""By the ``kind`` of an upstream."""
