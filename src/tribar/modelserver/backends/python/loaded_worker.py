"""A worker process with its model loaded, from its start to its end."""

import asyncio
import logging
from collections.abc import Callable
from typing import Self

from tribar.core.errors import Internal, InvalidRequest
from tribar.modelserver.backends.base import InstanceSpec
from tribar.modelserver.backends.python.calls import Calls
from tribar.modelserver.backends.python.link import Link
from tribar.modelserver.backends.python.messages import Open
from tribar.modelserver.backends.python.model_metrics import ModelMetrics
from tribar.modelserver.backends.python.process import WorkerProcess

_log = logging.getLogger(__name__)


class Worker:
    """Made by ``open``. When the process ends, in whatever way, ``link`` fails what waits for it."""

    def __init__(self, name: str, process: WorkerProcess, link: Link, on_end: Callable[[], None]) -> None:
        self.link = link
        self._name = name
        self._process = process
        self._on_end = on_end
        self._end = asyncio.create_task(self._watch())

    @classmethod
    async def open(
        cls, spec: InstanceSpec, opening: Open, metrics: ModelMetrics | None, on_end: Callable[[], None]
    ) -> Self:
        """Start a process and load the model. ``on_end`` is called before those that wait learn of its end.

        Raises ``Unavailable``, ``InvalidRequest`` (the model's own error) or ``Internal``; then nothing is left.
        """

        def on_line(line: str) -> None:
            _log.info("%s", line, extra={"instance": spec.name})

        process = await WorkerProcess.start(spec.name, spec.n_threads, on_line)
        link = Link(spec.name, process, metrics)
        link.calls = Calls(link, spec.infer, spec.control)
        worker = cls(spec.name, process, link, on_end)
        try:
            await asyncio.get_running_loop().create_connection(lambda: link, sock=process.channel)
            ready = await link.open(opening)
            if ready.error is not None:
                raise InvalidRequest(ready.error)
        except BaseException:
            process.kill()
            await worker.ended()
            raise
        return worker

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    async def ended(self) -> str:
        """Wait for its end; how it came, in words."""
        return await asyncio.shield(self._end)

    async def finalize(self, grace_s: float) -> bool:
        """Have the model finalized; False where it took longer than ``grace_s`` and was killed."""
        self.link.finalize()
        _, pending = await asyncio.wait([self._end], timeout=grace_s)
        self._process.kill()
        await asyncio.wait([self._end])
        return not pending

    async def _watch(self) -> str:
        how = await self._process.wait()
        self._on_end()
        self.link.fail(Internal(f"the worker process of '{self._name}' ended ({how})"))
        self._process.close()
        return how
