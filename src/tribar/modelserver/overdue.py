"""One timer for all that wait equally long: a timer for each request would be a tenth of a small one's cost."""

import asyncio
import math
from typing import Protocol


class Waiting(Protocol):
    """Who may wait too long. Compared by identity."""

    def on_overdue(self) -> None:
        """The time is over; this is called once."""
        ...


class Overdue:
    """Tells those that were added and not discarded ``delay_s`` later."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._due_s: dict[Waiting, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, waiting: Waiting) -> None:
        """Begin to wait, on the running event loop."""
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
        self._due_s[waiting] = due_s = loop.time() + self._delay_s
        if self._timer is None:
            self._timer = loop.call_at(due_s, self._on_timer)

    def discard(self, waiting: Waiting) -> None:
        """It waits no longer. Idempotent."""
        self._due_s.pop(waiting, None)

    def _on_timer(self) -> None:
        """Who is told may have others added and discarded: nobody is told twice, and there is one timer."""
        assert self._loop is not None
        now_s = self._loop.time()
        try:
            for waiting in self._due(now_s):
                if self._due_s.get(waiting, math.inf) <= now_s:
                    del self._due_s[waiting]
                    waiting.on_overdue()
        finally:
            first_s = next(iter(self._due_s.values()), None)
            self._timer = None if first_s is None else self._loop.call_at(first_s, self._on_timer)

    def _due(self, now_s: float) -> list[Waiting]:
        due: list[Waiting] = []
        for waiting, due_s in self._due_s.items():  # in order of time, as they were added
            if due_s > now_s:
                break
            due.append(waiting)
        return due
