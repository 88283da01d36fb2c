"""The line inside one process: the engine loop in a thread, its clients in asyncio loops.

Messages are handed over as objects. One lock guards everything; the engine waits on its condition, a client on an
asyncio event that the engine sets through ``call_soon_threadsafe``. Nobody polls.
"""

import asyncio
import threading
from collections import deque

from tribar.core.errors import Unavailable
from tribar.wire.messages import ToClient, ToEngine
from tribar.wire.outbox import Outbox

MAX_INBOX = 4096
"""Messages that may wait for the engine; beyond it ``send`` waits."""


class _Link:
    """One client's state; every attribute is guarded by the endpoint's lock, ``changed`` belongs to the loop."""

    def __init__(self, key: int, loop: asyncio.AbstractEventLoop) -> None:
        self.key = key
        self.loop = loop
        self.outbox = Outbox()
        self.is_open = True
        self.changed = asyncio.Event()
        self.wake_scheduled = False


class InProcessEndpoint:
    """The engine's end; see ``EngineEndpoint``. ``connect`` may be called from any thread with a running loop."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._inbox: deque[tuple[int, ToEngine | None]] = deque()
        self._links: dict[int, _Link] = {}
        self._last_key = 0
        self._is_woken = False
        self._is_closed = False

    async def connect(self) -> "InProcessChannel":
        """A new client's channel, bound to the running loop. Raises ``Unavailable`` after ``close``."""
        with self._condition:
            if self._is_closed:
                raise Unavailable("the engine has stopped", retry_after_s=1.0)
            self._last_key += 1
            link = _Link(self._last_key, asyncio.get_running_loop())
            self._links[link.key] = link
        return InProcessChannel(self, link)

    def poll(self, timeout_s: float | None) -> list[tuple[int, ToEngine | None]]:
        """See ``EngineEndpoint.poll``."""
        with self._condition:
            self._condition.wait_for(lambda: self._inbox or self._is_woken, timeout_s)
            self._is_woken = False
            messages = list(self._inbox)
            self._inbox.clear()
            if len(messages) >= MAX_INBOX:
                for link in list(self._links.values()):
                    self._notify(link)
        return messages

    def send(self, client: int, message: ToClient) -> None:
        """See ``EngineEndpoint.send``."""
        with self._condition:
            link = self._links.get(client)
            if link is None:
                return
            link.outbox.put(message)
            if link.outbox.is_full:
                self._hang_up(link)
            else:
                self._notify(link)

    def drop(self, client: int) -> None:
        """See ``EngineEndpoint.drop``."""
        with self._condition:
            link = self._links.get(client)
            if link is not None:
                link.outbox = Outbox()
                self._hang_up(link)

    def wake(self) -> None:
        """See ``EngineEndpoint.wake``. The lock is reentrant, so a signal handler may interrupt any other call."""
        with self._condition:
            self._is_woken = True
            self._condition.notify()

    def close(self, flush_s: float = 1.0) -> None:
        """See ``EngineEndpoint.close``. Clients can still receive what is pending, so there is no wait."""
        with self._condition:
            self._is_closed = True
            for link in list(self._links.values()):
                self._hang_up(link)

    def offer(self, link: _Link, message: ToEngine) -> bool:
        """Client side of ``send``: False when the inbox is full. Raises ``Unavailable``."""
        with self._condition:
            if not link.is_open:
                raise Unavailable("the engine has stopped", retry_after_s=1.0)
            if len(self._inbox) >= MAX_INBOX:
                link.changed.clear()
                return False
            self._inbox.append((link.key, message))
            self._condition.notify()
            return True

    def take(self, link: _Link) -> ToClient | None:
        """Client side of ``receive``: None when nothing is pending. Raises ``Unavailable``."""
        with self._condition:
            message = link.outbox.take()
            if message is None:
                if not link.is_open:
                    raise Unavailable("the engine has stopped", retry_after_s=1.0)
                link.changed.clear()
            return message

    def leave(self, link: _Link) -> None:
        """Client side of ``close``."""
        with self._condition:
            if link.is_open:
                link.outbox = Outbox()
                self._hang_up(link)

    def _hang_up(self, link: _Link) -> None:
        link.is_open = False
        self._links.pop(link.key, None)
        self._inbox.append((link.key, None))
        self._condition.notify()
        self._notify(link)

    def _notify(self, link: _Link) -> None:
        """Wake the client's tasks. Wake-ups that are still under way are not doubled."""
        if link.wake_scheduled:
            return
        link.wake_scheduled = True
        try:
            link.loop.call_soon_threadsafe(self._wake_client, link)
        except RuntimeError:  # the loop is closed: its client can never hang up by itself
            if link.is_open:
                self._hang_up(link)

    def _wake_client(self, link: _Link) -> None:
        with self._condition:
            link.wake_scheduled = False
        link.changed.set()


class InProcessChannel:
    """A client's end; see ``Channel``."""

    def __init__(self, endpoint: InProcessEndpoint, link: _Link) -> None:
        self._endpoint = endpoint
        self._link = link

    async def send(self, message: ToEngine) -> None:
        """See ``Channel.send``."""
        while not self._endpoint.offer(self._link, message):
            await self._link.changed.wait()

    async def receive(self) -> ToClient:
        """See ``Channel.receive``."""
        while (message := self._endpoint.take(self._link)) is None:
            await self._link.changed.wait()
        return message

    async def close(self) -> None:
        """See ``Channel.close``."""
        self._endpoint.leave(self._link)
