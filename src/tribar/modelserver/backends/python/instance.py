"""One instance of a Python model: a worker that is kept alive."""

import asyncio
import logging

from tribar.core.errors import TribarError, Unavailable
from tribar.modelserver.backends.base import Execution, InstanceSpec
from tribar.modelserver.backends.python.loaded_worker import Worker
from tribar.modelserver.backends.python.messages import Open
from tribar.modelserver.backends.python.model_metrics import ModelMetrics

FIRST_DELAY_S = 0.5
MAX_DELAY_S = 30.0

_log = logging.getLogger(__name__)


class PythonInstance:
    """A worker with its model. When it dies, its requests fail and another one is started.

    The first start after a death is immediate, and executions wait for it. While starts fail, or workers die without
    having run a batch, they are put off for longer and longer, and executions are refused meanwhile.
    """

    def __init__(
        self,
        spec: InstanceSpec,
        opening: Open,
        metrics: ModelMetrics | None,
        finalize_grace_s: float,
    ) -> None:
        self._spec = spec
        self._opening = opening
        self._metrics = metrics
        self._finalize_grace_s = finalize_grace_s
        self._is_decoupled = spec.signature.is_decoupled
        self._worker: Worker | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._settled = asyncio.Event()
        self._retry_at_s = 0.0

    async def start(self) -> None:
        """Load the model. Raises the reason why that failed; nothing is left then."""
        self._worker = await self._open()
        self._settled.set()
        self._keeper = asyncio.create_task(self._keep_alive())

    async def execute(self, execution: Execution) -> None:
        """See ``Instance``. Raises ``Unavailable`` while the worker cannot be restarted."""
        worker = self._worker
        if worker is None:
            await self._settled.wait()
            worker = self._worker
            if worker is None:
                wait_s = max(0.0, self._retry_at_s - asyncio.get_running_loop().time())
                raise Unavailable(
                    f"the worker process of '{self._spec.name}' keeps ending; see the log", retry_after_s=wait_s
                )
        await worker.link.execute(execution, is_decoupled=self._is_decoupled)

    async def close(self) -> None:
        """See ``Instance``: the model is finalized, and after the grace killed."""
        keeper, self._keeper = self._keeper, None
        if keeper is None:
            return
        keeper.cancel()
        await asyncio.wait([keeper])
        worker, self._worker = self._worker, None
        if worker is not None and not await worker.finalize(self._finalize_grace_s):
            _log.warning(
                "the model '%s' did not finalize within %.3g s and was killed", self._spec.name, self._finalize_grace_s
            )

    @property
    def worker_pid(self) -> int | None:
        """The worker's process id, None while there is none."""
        return None if self._worker is None else self._worker.pid

    async def _open(self) -> Worker:
        return await Worker.open(self._spec, self._opening, self._metrics, self._on_end)

    async def _keep_alive(self) -> None:
        n_failures = 0
        worker = self._worker
        while worker is not None:
            how = await worker.ended()
            n_failures = 1 if worker.link.n_done else n_failures + 1
            _log.error("the worker process of '%s' ended (%s); it is started again", self._spec.name, how)
            self._worker = worker = await self._restarted(n_failures)
            self._settled.set()

    def _on_end(self) -> None:
        self._worker = None
        self._settled.clear()

    async def _restarted(self, n_failures: int) -> Worker:
        while True:
            if n_failures > 1:
                await self._put_off(min(MAX_DELAY_S, FIRST_DELAY_S * 2 ** (n_failures - 2)))
            try:
                return await self._open()
            except TribarError as error:
                n_failures += 1
                reason = error.message
            _log.error("the model '%s' cannot be started again: %s", self._spec.name, reason)

    async def _put_off(self, delay_s: float) -> None:
        self._retry_at_s = asyncio.get_running_loop().time() + delay_s
        self._settled.set()
        await asyncio.sleep(delay_s)
        self._settled.clear()
