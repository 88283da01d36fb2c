"""The front end of one host: one asyncio loop with the HTTP server, the hosted models and the supervisor in it."""

import asyncio
import functools
import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from rich.console import Console
from starlette.types import ASGIApp

import tribar
from tribar.app.caching import Caching
from tribar.app.collector import settle_collector
from tribar.app.config import ServerConfig
from tribar.app.draining import DrainingCatalog, LastAnswers
from tribar.app.edge import Edge
from tribar.app.hosted_engine import HostedEngine
from tribar.app.hosting import Hosted, LanguageModel, Models
from tribar.app.http_server import HttpServer
from tribar.app.ledger import Ledger
from tribar.app.limiting import Limiting
from tribar.app.listener import url_of
from tribar.app.machine import MachineFacts
from tribar.app.model import OpenedModel
from tribar.app.panel import show_ready
from tribar.app.pool import HostedPool
from tribar.app.resolve import ResolvedConfig
from tribar.app.shared_stores import SharedStores
from tribar.app.supervisor import ProcessSupervisor
from tribar.core.ports import TextGenerator
from tribar.gateway.app import build_app
from tribar.gateway.catalog import ServedModel, StaticCatalog
from tribar.gateway.limits.limited import Limited
from tribar.gateway.middleware import RequestRecord, log_access
from tribar.telemetry.loop_watchdog import LoopMetrics, LoopWatchdog
from tribar.telemetry.metrics import metrics_text

PROBES = frozenset({"/health", "/health/live", "/health/ready", "/metrics", "/v2/health/live", "/v2/health/ready"})
"""Asked every few seconds for ever: worth no line in the log."""

MakePool = Callable[[CollectorRegistry, tuple[str, TextGenerator] | None], HostedPool]
"""Of the registry, and of the own engine with its name."""

_log = logging.getLogger(__name__)
_process_log = logging.getLogger("tribar.process")


class FrontEnd:
    """Serves a language model, a model repository, a pool of engines, or several of them on ``listener``.

    ``directory`` is private to it. The language model runs on an engine of this server, or (``make_cluster``) on those
    of a cluster.
    """

    def __init__(
        self,
        server: ServerConfig,
        machine: MachineFacts,
        listener: socket.socket,
        directory: Path,
        edge: Edge,
        *,
        language_model: tuple[OpenedModel, ResolvedConfig] | None = None,
        make_cluster: Callable[[CollectorRegistry], LanguageModel] | None = None,
        make_models: Callable[[CollectorRegistry], Models] | None = None,
        make_pool: MakePool | None = None,
    ) -> None:
        self._server = server
        self._listener = listener
        self._directory = directory
        self._edge = edge
        self._language_model = language_model
        self._make_cluster = make_cluster
        self._make_models = make_models
        self._make_pool = make_pool
        self._registry = CollectorRegistry()
        self._watchdog = LoopWatchdog(LoopMetrics(self._registry))
        self._stores = SharedStores(edge.stores, self._registry)
        self._limiting = Limiting(edge.limiting, edge.rules, edge.keys, self._stores, self._registry)
        self._supervisor = ProcessSupervisor(
            Ledger(cores=machine.cores, memory_bytes=machine.memory_bytes),
            lambda name, line: _process_log.info("%s: %s", name, line),
            lambda name, line: _process_log.warning("%s %s", name, line),
        )
        self._stop = asyncio.Event()
        self._guards: dict[str, tuple[TextGenerator, ServedModel]] = {}
        self._reloading = asyncio.Lock()
        self._reloads: set[asyncio.Task[None]] = set()

    async def run(self, console: Console, started_s: float) -> int:
        """Serve until a signal, drain, and return 0. ``started_s``: when the program began, for the panel.

        Raises ``Internal`` where the engine cannot be started, or not again.
        """
        self._handle_signals()
        caching = await Caching.open(self._edge.cache, self._stores, self._registry)
        engine, models = self._engine(), self._models()
        pool = self._pool(engine)
        served = StaticCatalog(self._served(engine, pool, caching))
        self._handle_hangup(functools.partial(self._reload, served, engine, pool, caching))
        parts = [part for part in (engine, models, pool) if part is not None]
        catalog = DrainingCatalog(
            served,
            is_rest_ready=(lambda: True) if models is None else models.is_ready,
        )
        await self._stores.open()
        self._limiting.start()
        caching.start()
        self._watchdog.start()
        http = HttpServer(self._app(catalog, models, caching), self._listener, self._edge.connections)
        http.start()
        serving = [asyncio.create_task(part.run(), name="serve a part") for part in parts]
        try:
            await self._first_of(serving, _start(parts))
            if not self._stop.is_set():
                settle_collector()
                show_ready(console, url_of(self._listener), time.monotonic() - started_s, engine, models, pool)
                await self._first_of(serving)
                catalog.leave()
                await asyncio.sleep(self._server.drain_delay_s)
        finally:
            catalog.drain()
            await asyncio.gather(*(part.stop(self._server.drain_timeout_s) for part in parts))
            await http.stop()
            for task in serving:
                task.cancel()
            await caching.stop()
            await self._limiting.stop()
            await self._stores.close()
            self._watchdog.stop()
        return 0

    def _engine(self) -> LanguageModel | None:
        if self._make_cluster is not None:
            return self._make_cluster(self._registry)
        if self._language_model is None:
            return None
        opened, resolved = self._language_model
        return HostedEngine(
            opened,
            resolved,
            self._directory,
            self._supervisor,
            self._registry,
            self._edge.public_prefix,
            grace_s=self._server.drain_timeout_s,
        )

    def _served(
        self, engine: LanguageModel | None, pool: HostedPool | None, caching: Caching
    ) -> dict[str, ServedModel]:
        """What the gateway serves, by name."""
        models = {} if pool is None else pool.served()
        found = {name: self._guarded(model, caching, name, "") for name, model in models.items()}
        if engine is not None and (pool is None or not pool.takes_engine):
            found[engine.name] = self._guarded(engine.served(), caching, engine.name, engine.version)
        return found

    def _guarded(self, served: ServedModel, caching: Caching, name: str, version: str) -> ServedModel:
        """A model behind its limits, behind the cache, whose hits cost nobody anything. Made once for each model."""
        before, guarded = self._guards.get(name, (None, served))
        if before is served.generator:
            return guarded
        limited = replace(served, generator=Limited(served.generator, self._limiting.gate))
        guarded = caching.in_front(limited, served.generator, name, version)
        self._guards[name] = served.generator, guarded
        return guarded

    def _models(self) -> Models | None:
        return None if self._make_models is None else self._make_models(self._registry)

    def _pool(self, engine: LanguageModel | None) -> HostedPool | None:
        if self._make_pool is None:
            return None
        own = None if engine is None else (engine.name, engine.served().generator)
        return self._make_pool(self._registry, own)

    def _app(self, catalog: DrainingCatalog, models: Models | None, caching: Caching) -> ASGIApp:
        keys = self._edge.keys
        app = build_app(
            catalog,
            config=self._edge.gateway,
            metrics_text=functools.partial(metrics_text, self._registry),
            observe=_observe,
            rooms={} if models is None else {"/v2": models.app},
            tenant_of=None if keys is None else keys.tenant_of,
            gate=self._limiting.gate,
            embedders=caching.embedders,
            cache=caching.administration,
            usage=self._limiting.ledger,
            version=tribar.__version__,
        )
        return LastAnswers(app, catalog.is_leaving)

    async def _first_of(self, serving: "Sequence[asyncio.Task[None]]", *work: Coroutine[Any, Any, object]) -> None:
        """Wait for ``work``, a signal, or the end of a part, whichever is first; cancel the work.

        Parts go on serving; none ends by itself, so where one does end its error is raised: a server with a broken
        part would only look alive. After a signal nothing is raised any more.
        """
        tasks = [asyncio.create_task(wait) for wait in (*work, self._stop.wait())]
        await asyncio.wait([*tasks, *serving], return_when=asyncio.FIRST_COMPLETED)
        ended = [task for task in (*serving, *tasks) if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        if not self._stop.is_set():
            for task in ended:
                task.result()

    async def _reload(
        self, served: StaticCatalog, engine: LanguageModel | None, pool: HostedPool | None, caching: Caching
    ) -> None:
        """Read keys and upstreams again."""
        if self._edge.keys is not None:
            await asyncio.to_thread(self._edge.keys.reload)
        if pool is not None and await pool.reload(self._server.drain_timeout_s):
            served.replace(self._served(engine, pool, caching))

    def _handle_signals(self) -> None:
        """Those that end the server."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._on_signal, number)

    def _handle_hangup(self, reload: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Without anything to read again, a hangup (of the terminal) ends the server, unless nohup has it ignored."""
        loop = asyncio.get_running_loop()
        if self._edge.keys is not None or self._make_pool is not None:
            loop.add_signal_handler(signal.SIGHUP, self._on_hangup, reload)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._on_signal, signal.SIGHUP)

    def _on_hangup(self, reload: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """One reading after another: the last file counts."""

        async def one_after_another() -> None:
            async with self._reloading:
                await reload()

        task = asyncio.create_task(one_after_another(), name="read settings again")
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def _on_signal(self, number: int) -> None:
        """The first drains, the second leaves at once: no waiting, but no orphans and no files either."""
        if not self._stop.is_set():
            delay_s, timeout_s = self._server.drain_delay_s, self._server.drain_timeout_s
            first = f"not ready any more, but serving for {delay_s:g} s; then " if delay_s else ""
            _log.info("%sdraining for at most %g s; a second signal ends at once", first, timeout_s)
            self._stop.set()
            return
        self._supervisor.kill_all()
        shutil.rmtree(self._directory, ignore_errors=True)
        os._exit(128 + number)


async def _start(parts: Sequence[Hosted]) -> None:
    """Return when all of them are ready."""
    await asyncio.gather(*(part.start() for part in parts))


def _observe(record: RequestRecord) -> None:
    if record.path not in PROBES:
        log_access(record, logging.DEBUG if _is_plain_inference(record) else logging.INFO)


def _is_plain_inference(record: RequestRecord) -> bool:
    """An inference that went well. The model's statistics count them; a line would cost a tenth of a small one."""
    path = record.path
    return record.status == 200 and not record.error and path.startswith("/v2/") and path.endswith("/infer")
