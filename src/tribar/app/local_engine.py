"""An engine and its client inside this process: the same loop and the same client as a server's, over objects.

Two threads of its own: the engine loop, and the asyncio loop in which the client lives.
"""

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from tribar.app.engine_spec import engine_spec
from tribar.app.model import OpenedModel
from tribar.app.resolve import ResolvedConfig
from tribar.core.errors import Internal, Unavailable
from tribar.engine.client import EngineClient
from tribar.engine.grammar.compiler import GrammarCompiler
from tribar.engine.loop import EngineLoop
from tribar.engine.scheduler import Scheduler
from tribar.runtime.runners import create_runner
from tribar.wire.in_process import InProcessEndpoint

T = TypeVar("T")


class LocalEngine:
    """A running engine with its ``client``. The constructor loads the model; ``close`` frees it.

    Raises ``BadModelFile`` or ``Unsupported`` where the model cannot be loaded.
    """

    def __init__(self, opened: OpenedModel, resolved: ResolvedConfig) -> None:
        spec = engine_spec(resolved, opened, grace_s=0.0)
        endpoint = InProcessEndpoint()
        grammars = GrammarCompiler(spec.vocabulary, endpoint.wake)
        self._runner = create_runner(spec.runner, spec.runner_config)
        info = self._runner.load()
        scheduler = Scheduler(spec.scheduler, info)
        self._engine = EngineLoop(endpoint, scheduler, self._runner, spec.card(info), grammars, depth=info.depth)
        self.client = EngineClient(endpoint.connect, opened.text)
        self._loop = asyncio.new_event_loop()
        self._threads = [
            threading.Thread(target=self._run_engine, name="tribar engine", daemon=True),
            threading.Thread(target=self._run_loop, name="tribar client", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        self._serving = self.call(self._start_serving())

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return not self._threads

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run ``work`` in the client's loop and wait for it; an interrupt of the wait cancels it.

        Raises what it raises, and ``Unavailable`` after ``close``.
        """
        if not self._threads:
            work.close()
            raise Unavailable("this LLM was closed")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End both threads and free the model. Open calls fail with ``Unavailable``. Idempotent."""
        if not self._threads:
            return
        self.call(self._stop_serving())
        engine, client = self._threads
        self._threads = []
        self._engine.stop(0.0)
        engine.join()
        self._loop.call_soon_threadsafe(self._loop.stop)
        client.join()
        self._loop.close()
        self._runner.close()

    async def _start_serving(self) -> asyncio.Task[None]:
        serving = asyncio.create_task(self.client.run(), name="engine client")
        await self.client.wait_ready()
        return serving

    async def _stop_serving(self) -> None:
        """Hang up on the engine: every open generation fails. Then let whoever waited for one take notice."""
        self._serving.cancel()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait(others)

    def _run_engine(self) -> None:
        try:
            self._engine.run()
        except Internal:  # the loop has logged it and told every open request
            return

    def _run_loop(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
