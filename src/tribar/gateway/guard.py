"""Work that ends early when something beside it goes wrong: the client leaves, the reader stalls."""

import asyncio
import logging
from types import TracebackType

from starlette.types import Receive

from tribar.core.errors import Cancelled, TribarError

_log = logging.getLogger(__name__)


class Lifeline:
    """Guards the body of its ``async with`` block, which runs in the task that it was in before.

    When the client goes away, or ``break_off`` is called, whatever the body waits for is cancelled; once the body has
    cleaned up, the block raises the error instead of ``CancelledError``. A cancellation from outside passes as it is.
    To be used once the request's body has been read: from then on ``receive`` is the lifeline's.
    """

    __slots__ = ("_error", "_is_open", "_n_cancelling", "_receive", "_task", "_watch")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._error: TribarError | None = None
        self._is_open = False

    async def __aenter__(self) -> "Lifeline":
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._n_cancelling = task.cancelling()
        self._is_open = True
        self._watch = asyncio.create_task(self._watch_client())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_open = False
        self._watch.cancel()
        task = self._task
        # Both tasks refer to their frames, and these to the lifeline: without them the whole request is freed at once,
        # and thousands of requests leave nothing for the collector.
        del self._task, self._watch
        if self._error is None:
            return
        is_ours = task.uncancel() <= self._n_cancelling
        if is_ours and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise self._error from None

    def break_off(self, error: TribarError) -> None:
        """End the body with ``error``. The first call counts; after the end of the block it does nothing."""
        if self._is_open and self._error is None:
            self._error = error
            self._task.cancel()

    async def _watch_client(self) -> None:
        try:
            while (await self._receive())["type"] != "http.disconnect":
                pass
        except Exception as error:
            _log.warning("a connection can no longer be watched: %s", error)
        self.break_off(Cancelled("the client went away"))
