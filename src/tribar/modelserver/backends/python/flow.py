"""The front end's account of one request's responses: which of them its reader has taken."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from tribar.modelserver.backends.python.messages import Sent, Taken

READER_PATIENCE_S: Final = 60.0
"""So long a model waits for a reader that takes nothing."""


class Flow:
    """Tells the worker what was taken whenever its model waits for that. Closed with the final response."""

    def __init__(self, uid: int, tell: Callable[[Taken], None], give_up: Callable[[int], None]) -> None:
        """``give_up(uid)`` is called where the model has waited for too long."""
        self._uid = uid
        self._tell = tell
        self._give_up = give_up
        self._unread: deque[int] = deque()
        self._n_taken = 0
        self._n_taken_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._is_open = True

    def sent(self, message: Sent) -> None:
        """A response is on its way to its reader."""
        response = message.response
        self._unread.append(0 if response is None else sum([tensor.n_bytes for tensor in response.outputs]))

    def taken(self) -> None:
        """The reader has the oldest response, or nobody ever will."""
        if not self._is_open:
            return
        self._n_taken += 1
        self._n_taken_bytes += self._unread.popleft()
        if self._timer is not None:
            self._report()

    def asked(self) -> None:
        """The model waits."""
        if self._n_taken:
            self._report()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(READER_PATIENCE_S, self._give_up, self._uid)

    def close(self) -> None:
        """Nothing of it will be sent any more."""
        self._is_open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _report(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._tell(Taken(self._uid, self._n_taken, self._n_taken_bytes))
        self._n_taken = self._n_taken_bytes = 0
