"""The instances of a model version, each with the task that feeds it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Protocol

from tribar.core.errors import InvalidRequest
from tribar.modelserver.backends.base import Instance
from tribar.modelserver.scheduling.call import Call

logger = logging.getLogger(__name__)

GRACE_S = 60.0
"""A batch whose requests are all over may run that long when its model is unloaded; longer than models finalize."""

HUNG_GRACE_S = 1.0
"""The same for a batch whose requests nobody could wait for any longer."""

OpenInstance = Callable[[int], Awaitable[Instance]]
"""Loads the instance with this index (0, 1, ... over all groups). Raises a ``TribarError`` with the reason."""


class Feeder(Protocol):
    """Who has batches for the workers."""

    def next_batch(self) -> Sequence[Call]:
        """What to run now; empty when there is nothing."""
        ...

    def on_idle(self) -> None:
        """A worker has parked: it runs when it is woken."""
        ...

    async def run(self, instance: Instance, calls: Sequence[Call]) -> None:
        """Run one batch; never raises."""
        ...


class Worker:
    """One instance and its task: takes a batch whenever it is free, and parks when there is none.

    A decoupled call may outlive its execution, so a retired worker closes its instance only when all are over.
    """

    def __init__(self, instance: Instance, pool: "WorkerPool", feeder: Feeder) -> None:
        self._instance = instance
        self._pool = pool
        self._feeder = feeder
        self._wakeup: asyncio.Future[None] | None = None
        self._batch: Sequence[Call] = ()
        self._open: set[Call] = set()
        self._all_over = asyncio.Event()
        self._is_retired = False
        self.task = asyncio.get_running_loop().create_task(self._work())

    def wake(self, batch: Sequence[Call] = ()) -> None:
        """Let a parked worker look for a batch, or give it one."""
        self._batch = self._batch or batch
        if self._wakeup is not None and not self._wakeup.done():
            self._wakeup.set_result(None)

    def retire(self) -> None:
        """Finish what it has, then close the instance."""
        self._is_retired = True
        self.wake()

    async def end(self, grace_s: float) -> None:
        """Wait until a retired worker has closed its instance.

        One that still runs after ``grace_s`` has its instance closed meanwhile (which ends a worker process), and is
        left behind where that takes ``GRACE_S``.
        """
        _, pending = await asyncio.wait([self.task], timeout=grace_s)
        if not pending:
            return
        logger.warning("an instance goes on with a batch that nobody waits for; it is closed")
        closing = asyncio.get_running_loop().create_task(self._close())
        _, pending = await asyncio.wait([closing, self.task], timeout=GRACE_S)
        if pending:
            logger.error("an instance does not end; it is left behind, with the memory that it uses")
        for task in pending:
            task.cancel()

    def forget(self, call: Call) -> None:
        """A call that outlived its execution is over."""
        self._open.discard(call)
        if not self._open:
            self._all_over.set()

    async def _work(self) -> None:
        while self._batch or not self._is_retired:
            calls, self._batch = self._batch or self._feeder.next_batch(), ()
            if calls:
                await self._feeder.run(self._instance, calls)
                self._keep_open(calls)
            else:
                await self._park()
        while self._open:
            self._all_over.clear()
            await self._all_over.wait()
        await self._close()

    async def _close(self) -> None:
        try:
            await self._instance.close()
        except Exception:
            logger.exception("an instance failed to close")

    async def _park(self) -> None:
        self._wakeup = asyncio.get_running_loop().create_future()
        self._pool.park(self)
        await self._wakeup
        self._wakeup = None
        self._pool.unpark(self)

    def _keep_open(self, calls: Sequence[Call]) -> None:
        for call in calls:
            if not call.is_over:
                call.worker = self
                self._open.add(call)


class WorkerPool:
    """All workers of a model version. Woken one after the other, the longest idle first."""

    def __init__(self, open_instance: OpenInstance, feeder: Feeder) -> None:
        self._open_instance = open_instance
        self._feeder = feeder
        self._workers: list[Worker] = []
        self._retired: set[Worker] = set()
        self._parked: dict[Worker, None] = {}
        self._is_waking = False
        self._resizing = asyncio.Lock()

    def __len__(self) -> int:
        return len(self._workers)

    @property
    def has_idle(self) -> bool:
        """Whether a worker is parked."""
        return bool(self._parked)

    def add(self, instances: Sequence[Instance]) -> None:
        """Put loaded instances to work."""
        self._workers += [Worker(instance, self, self._feeder) for instance in instances]

    def wake(self) -> None:
        """Let one parked worker look for a batch, unless one is about to."""
        if self._parked and not self._is_waking:
            self._is_waking = True
            next(iter(self._parked)).wake()

    def assign(self, batch: Sequence[Call]) -> None:
        """Give a parked worker its batch."""
        worker = next(iter(self._parked))
        del self._parked[worker]
        # it was to look at the queue, and will not: another one has to
        self._is_waking = False
        worker.wake(batch)

    def park(self, worker: Worker) -> None:
        """The worker has nothing to do."""
        self._parked[worker] = None
        self._feeder.on_idle()

    def unpark(self, worker: Worker) -> None:
        """The worker looks by itself."""
        self._parked.pop(worker, None)
        self._is_waking = False

    async def resize(self, n_instances: int) -> None:
        """Open or close instances, the last ones first; those busy finish what they run; waits for them, but bounded.

        Raises ``InvalidRequest`` below 1, and what opening raised; then nothing has changed.
        """
        if n_instances < 1:
            raise InvalidRequest(f"a model needs at least 1 instance, not {n_instances}", param="count")
        async with self._resizing:
            if n_instances > len(self._workers):
                self.add(await self._open(range(len(self._workers), n_instances)))
            else:
                self._retire(n_instances)
        if self._retired:
            await asyncio.wait([worker.task for worker in self._retired], timeout=GRACE_S)

    async def close(self, grace_s: float) -> None:
        """Close every instance, all requests being over; one that does not get free in ``grace_s``, too. Idempotent."""
        async with self._resizing:
            self._retire(0)
        await asyncio.gather(*(worker.end(grace_s) for worker in self._retired))

    def _retire(self, n_left: int) -> None:
        retired = self._workers[n_left:]
        del self._workers[n_left:]
        for worker in retired:
            self._parked.pop(worker, None)
            worker.retire()
            self._retired.add(worker)
            worker.task.add_done_callback(partial(self._forget, worker))

    def _forget(self, worker: Worker, _: "asyncio.Task[None]") -> None:
        self._retired.discard(worker)

    async def _open(self, indices: range) -> list[Instance]:
        results = await asyncio.gather(*map(self._open_instance, indices), return_exceptions=True)
        opened = [result for result in results if not isinstance(result, BaseException)]
        failures = [result for result in results if isinstance(result, BaseException)]
        if failures:
            await asyncio.gather(*(instance.close() for instance in opened))
            raise failures[0]
        return opened
