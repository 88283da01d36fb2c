"""A thread that owns what it works on."""

import asyncio
from collections import deque
from collections.abc import Callable
from threading import Lock, Thread
from typing import Any, Generic, Self, TypeVar

from tribar.core.errors import Internal

_Owned = TypeVar("_Owned")
_Result = TypeVar("_Result")
_Job = tuple[Callable[[_Owned], Any], "asyncio.Future[Any]"] | None
"""None ends the thread."""


class ModelThread(Generic[_Owned]):
    """One thread in which an object is made, used, and freed. Everything else is called on the event loop.

    A job costs one wake-up of the thread and one of the loop; nothing is allocated that a future does not need.
    """

    def __init__(self, name: str, make: Callable[[], _Owned]) -> None:
        """Use ``opened``: it waits until the object is there."""
        self._loop = asyncio.get_running_loop()
        self._jobs: _Mailbox[_Job[_Owned]] = _Mailbox()
        self._made: asyncio.Future[None] = self._loop.create_future()
        self._ended = asyncio.Event()
        # a daemon: a computation that never ends does not keep the process from ending
        self._thread = Thread(target=self._live, args=(make,), name=name, daemon=True)
        self._thread.start()

    @classmethod
    async def opened(cls, name: str, make: Callable[[], _Owned]) -> Self:
        """A thread that has made its object. Raises what ``make`` raises; then, or if cancelled, nothing is left."""
        thread = cls(name, make)
        try:
            await thread._made
        except BaseException:
            await thread.close()
            raise
        return thread

    async def run(self, job: Callable[[_Owned], _Result]) -> _Result:
        """The result of ``job``, or what it raised. One job at a time; a cancelled one runs to its end."""
        if self._jobs:
            raise Internal("a model's thread runs one job at a time")
        future: asyncio.Future[_Result] = self._loop.create_future()
        self._jobs.put((job, future))
        return await future

    async def close(self) -> None:
        """Finish the jobs, free the object, and wait for that. Idempotent; no ``run`` after it."""
        self._jobs.put(None)
        await self._ended.wait()
        self._thread.join()

    def _live(self, make: Callable[[], _Owned]) -> None:
        try:
            self._work(make)
        except Exception as error:
            self._loop.call_soon_threadsafe(_settle, self._made, None, error)
        finally:
            self._loop.call_soon_threadsafe(self._ended.set)

    def _work(self, make: Callable[[], _Owned]) -> None:
        owned = make()
        self._loop.call_soon_threadsafe(_settle, self._made, None, None)
        while (job := self._jobs.get()) is not None:
            self._do(owned, *job)
            # while it waits for the next job, the thread holds nothing of the last one
            del job

    def _do(self, owned: _Owned, job: Callable[[_Owned], Any], future: "asyncio.Future[Any]") -> None:
        result, failure = None, None
        try:
            result = job(owned)
        except Exception as error:
            failure = error
        self._loop.call_soon_threadsafe(_settle, future, result, failure)


class _Mailbox(deque[_Owned]):
    """From one thread to another, at the price of a lock: half of what a queue with its conditions costs."""

    def __init__(self) -> None:
        super().__init__()
        self._wake = Lock()

    def put(self, item: _Owned) -> None:
        """Called by one thread only."""
        self.append(item)
        # where it is free, the reader has not slept since the last item: it will look again before it does
        if self._wake.locked():
            self._wake.release()

    def get(self) -> _Owned:
        """Waits for an item. Called by one other thread only."""
        while not self:
            self._wake.acquire()
        return self.popleft()


def _settle(future: "asyncio.Future[Any]", result: object, failure: Exception | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
