"""The front end of one host: one asyncio loop with the HTTP server, the engine's client and the supervisor in it."""

import asyncio
import functools
import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from rich.console import Console
from starlette.types import ASGIApp

import tribar
from tribar.app.collector import settle_collector
from tribar.app.config import ServerConfig
from tribar.app.draining import DrainingCatalog, LastAnswers
from tribar.app.edge import Edge
from tribar.app.engine_spec import engine_spec
from tribar.app.http_server import HttpServer
from tribar.app.ledger import Ledger
from tribar.app.listener import url_of
from tribar.app.machine import MachineFacts
from tribar.app.model import OpenedModel
from tribar.app.panel import show_ready
from tribar.app.resolve import ResolvedConfig
from tribar.app.supervisor import EX_CONFIG, ProcessSupervisor
from tribar.core.errors import Internal
from tribar.core.ports import ProcessSpec
from tribar.engine.client import EngineClient
from tribar.engine.public_prefix import PublicPrefix
from tribar.gateway.app import build_app
from tribar.gateway.catalog import ServedModel, StaticCatalog
from tribar.gateway.middleware import RequestRecord, log_access
from tribar.gateway.vocabulary import Vocabulary
from tribar.telemetry.metrics import EngineFamilies, EngineMetrics, metrics_text
from tribar.wire.unix_socket import UnixSocketChannel

ENGINE = "engine"
ENGINE_TARGET = "tribar.engine.process"

MAX_EARLY_DEATHS = 3
"""An engine that ends so often before it was ever ready will not get there: the server gives up."""

KILL_MARGIN_S = 5.0
"""How much longer than its grace an engine may take to end before it is killed."""

PROBES = frozenset({"/health", "/health/live", "/health/ready", "/metrics"})
"""Asked every few seconds for ever: worth no line in the log."""

_log = logging.getLogger(__name__)
_process_log = logging.getLogger("tribar.process")


class FrontEnd:
    """Serves one model on ``listener``. ``directory`` is private to it: the engine's socket and spec lie there."""

    def __init__(
        self,
        server: ServerConfig,
        machine: MachineFacts,
        opened: OpenedModel,
        resolved: ResolvedConfig,
        listener: socket.socket,
        directory: Path,
        edge: Edge,
    ) -> None:
        self._server = server
        self._opened = opened
        self._resolved = resolved
        self._listener = listener
        self._directory = directory
        self._edge = edge
        self._registry = CollectorRegistry()
        self._supervisor = ProcessSupervisor(
            Ledger(cores=machine.cores, memory_bytes=machine.memory_bytes),
            lambda name, line: _process_log.info("%s: %s", name, line),
            lambda name, line: _process_log.warning("%s %s", name, line),
        )
        self._stop = asyncio.Event()
        self._engine_failed = asyncio.Event()
        self._is_ready = False
        self._n_early_deaths = 0

    async def run(self, console: Console, started_s: float) -> int:
        """Serve until a signal, drain, and return 0. ``started_s``: when the program began, for the panel.

        Raises ``Internal`` where the engine cannot be started, or not again.
        """
        self._handle_signals()
        socket_path = self._directory / "engine.sock"
        tokens = self._opened.text.tokenizer
        vocabulary = Vocabulary(tokens.token_bytes, tokens.special_ids, tokens.strips_leading_space)
        client = self._client(socket_path)
        served = ServedModel(client, vocabulary)
        catalog = DrainingCatalog(StaticCatalog({self._resolved.name: served}))
        http = HttpServer(self._app(catalog), self._listener, self._edge.connections)
        http.start()
        serving = asyncio.create_task(client.run(), name="engine client")
        try:
            await self._start_engine(socket_path)
            await self._first_of(serving, client.wait_ready())
            if not self._has_to_end():
                self._is_ready = True
                settle_collector()
                ready_s = time.monotonic() - started_s
                show_ready(console, self._resolved, client.card(), url_of(self._listener), ready_s)
                await self._first_of(serving)
                catalog.leave()
                await asyncio.sleep(self._server.drain_delay_s if self._stop.is_set() else 0)
            self._raise_if_failed()
        finally:
            catalog.drain()
            client.expect_end()
            # The engine gives open requests their grace and ends the rest; so their streams end in order, too.
            await self._supervisor.stop_all(self._server.drain_timeout_s + KILL_MARGIN_S)
            await http.stop()
            serving.cancel()
        return 0

    def _client(self, socket_path: Path) -> EngineClient:
        public_prefix = None
        if self._edge.public_prefix:
            public_prefix = PublicPrefix.of(self._edge.public_prefix, self._opened.text)
            n_tokens = [len(form) for form in public_prefix.forms]
            _log.info("tenants share the whole blocks of a public prefix of %d tokens", max(n_tokens))
        return EngineClient(
            functools.partial(UnixSocketChannel.connect, socket_path),
            self._opened.text,
            observer=EngineMetrics(EngineFamilies(self._registry), self._resolved.name),
            public_prefix=public_prefix,
        )

    def _app(self, catalog: DrainingCatalog) -> ASGIApp:
        keys = self._edge.keys
        app = build_app(
            catalog,
            config=self._edge.gateway,
            metrics_text=functools.partial(metrics_text, self._registry),
            observe=_observe,
            tenant_of=None if keys is None else keys.tenant_of,
            version=tribar.__version__,
        )
        return LastAnswers(app, catalog.is_leaving)

    async def _start_engine(self, socket_path: Path) -> None:
        spec_path = self._directory / "engine.json"
        spec = engine_spec(self._resolved, self._opened, grace_s=self._server.drain_timeout_s)
        spec_path.write_bytes(spec.to_json())
        self._supervisor.on_exit(ENGINE, self._on_engine_exit)
        arguments = ("--spec", str(spec_path), "--socket", str(socket_path), "--parent-pid", str(os.getpid()))
        await self._supervisor.spawn(
            ProcessSpec(
                ENGINE,
                ENGINE_TARGET,
                arguments,
                socket_path,
                cores=self._resolved.runner_config.n_threads,
                memory_bytes=self._resolved.memory_bytes,
            )
        )

    async def _on_engine_exit(self, exit_code: int) -> None:
        """A dead engine is restarted, but not for ever where it never got ready."""
        self._n_early_deaths += not self._is_ready
        if exit_code == EX_CONFIG or self._n_early_deaths >= MAX_EARLY_DEATHS:
            self._engine_failed.set()

    async def _first_of(self, serving: "asyncio.Task[None]", *work: Coroutine[Any, Any, object]) -> None:
        """Wait for ``work``, a signal, or the engine's failure, whichever is first; cancel the others.

        ``serving`` goes on; it never ends by itself, so where it does end its error is raised: a server without its
        engine's client would only look alive.
        """
        tasks = [asyncio.create_task(wait) for wait in (*work, self._stop.wait(), self._engine_failed.wait())]
        await asyncio.wait([serving, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        if serving.done():
            serving.result()

    def _has_to_end(self) -> bool:
        return self._stop.is_set() or self._engine_failed.is_set()

    def _raise_if_failed(self) -> None:
        if self._stop.is_set():
            return
        status = self._supervisor.status(ENGINE)
        last_line = status.last_line.removeprefix("error: ")
        if status.exit_code == EX_CONFIG:
            raise Internal(last_line)
        hint = " (killed: out of memory?)" if status.exit_code == -signal.SIGKILL else ""
        raise Internal(f"the engine ended with exit code {status.exit_code}{hint} while it started: {last_line}")

    def _handle_signals(self) -> None:
        """Without keys to read again, a hangup (of the terminal) ends the server, unless nohup has it ignored."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        if self._edge.keys is not None:
            loop.add_signal_handler(signal.SIGHUP, self._edge.keys.reload)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            loop.add_signal_handler(signal.SIGHUP, self._on_signal, signal.SIGHUP)

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


def _observe(record: RequestRecord) -> None:
    if record.path not in PROBES:
        log_access(record)
