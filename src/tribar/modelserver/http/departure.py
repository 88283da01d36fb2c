"""Clients that leave while their request is worked on."""

import asyncio
from typing import Final

from starlette.types import Receive

from tribar.modelserver.http.problem import client_left
from tribar.modelserver.overdue import Overdue

PATIENCE_S: Final = 0.05
"""Most answers are there before anybody has to be listened to; work that takes longer is worth cancelling."""


class Departure:
    """Cancels the task that made it once the client has left: ``explain`` this to it, and ``close`` it in the end."""

    __slots__ = ("_has_left", "_listener", "_overdue", "_receive", "_task")

    def __init__(self, receive: Receive, overdue: Overdue) -> None:
        """Listens once ``overdue`` says so."""
        self._has_left = False
        self._receive = receive
        self._task = asyncio.current_task()
        self._listener: asyncio.Task[None] | None = None
        self._overdue = overdue
        overdue.add(self)

    def explain(self) -> None:
        """Raises ``client_left`` if that is why the task was cancelled just now."""
        if self._has_left:
            if self._task is not None:
                self._task.uncancel()
            raise client_left("the client has left") from None

    def close(self) -> None:
        """Stop to listen."""
        self._overdue.discard(self)
        if self._listener is not None:
            self._listener.cancel()

    def on_overdue(self) -> None:
        """Listen (``Waiting``)."""
        self._listener = asyncio.get_running_loop().create_task(self._wait(), name="client that may leave")

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._has_left = True
        if self._task is not None:
            self._task.cancel()
