"""Request bodies: their size, together and each, and the time of their arrival are bounded while they are read."""

import asyncio
from typing import Final

from starlette.types import Message, Receive

from tribar.core.errors import DeadlineExceeded, Overloaded, TooLarge
from tribar.modelserver.http.compression import inflate
from tribar.modelserver.http.exchange import Exchange
from tribar.modelserver.http.problem import client_left

_INFLATE_INLINE_BYTES: Final = 1024
"""What a thousandfold growth makes of more takes longer than the loop should be held."""
_CLOCK_GRAIN_S: Final = 0.001
"""No timer is more exact."""


class BodyReader:
    """Reads bodies of up to ``max_bytes`` each; those in several pieces may hold ``max_all_bytes`` together.

    Each piece has ``pause_s`` to arrive, and a whole body ``timeout_s``.
    """

    def __init__(self, max_bytes: int, *, max_all_bytes: int, pause_s: float, timeout_s: float) -> None:
        self._max_bytes = max_bytes
        self._max_all_bytes = max_all_bytes
        self._pause_s = pause_s
        self._timeout_s = timeout_s
        self._n_bytes = 0

    async def read(self, exchange: Exchange) -> bytes:
        """The whole body of a request, decompressed.

        Raises ``TooLarge`` as soon as the limit is crossed (announced or not), ``Overloaded`` where others fill the
        room, ``DeadlineExceeded`` where it does not arrive in time, ``client_left``, and what
        ``inflate`` raises.
        """
        headers = exchange.headers
        announced = headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > self._max_bytes:
            raise self._too_large()
        body = await self._in_time(exchange.receive)
        if b"content-encoding" not in headers:
            return body
        encoding = headers[b"content-encoding"].decode("latin-1")
        if len(body) > _INFLATE_INLINE_BYTES:
            return await asyncio.to_thread(inflate, body, encoding, self._max_bytes)
        return inflate(body, encoding, self._max_bytes)

    async def _in_time(self, receive: Receive) -> bytes:
        """What ``asyncio.timeout`` does, which costs ten times as much: a tenth of a small request in all."""
        patience = _Patience(self._pause_s, self._timeout_s)
        try:
            return await self._arrived(receive, patience)
        except asyncio.CancelledError:
            if not patience.is_over or patience.task.uncancel() > 0:
                raise
            text = f"the request body did not arrive in time: {patience.limit_s:g} s are the limit"
            raise DeadlineExceeded(text) from None
        finally:
            patience.end()

    async def _arrived(self, receive: Receive, patience: "_Patience") -> bytes:
        message = await receive()
        if message["type"] != "http.request" or message.get("more_body", False):
            return await self._join(message, receive, patience)
        body: bytes = message.get("body", b"")
        if len(body) > self._max_bytes:
            raise self._too_large()
        return body

    async def _join(self, message: Message, receive: Receive, patience: "_Patience") -> bytes:
        body = bytearray()
        n_held = 0
        try:
            while True:
                if message["type"] == "http.disconnect":
                    raise client_left("the client went away before its request was complete")
                piece = message.get("body", b"")
                if len(body) + len(piece) > self._max_bytes:
                    raise self._too_large()
                if self._n_bytes + len(piece) > self._max_all_bytes:
                    raise Overloaded("too many large requests are arriving at the same time", retry_after_s=1.0)
                self._n_bytes += len(piece)
                n_held += len(piece)
                body += piece
                if not message.get("more_body", False):
                    return bytes(body)
                if piece:
                    patience.renew()
                message = await receive()
        finally:
            self._n_bytes -= n_held

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the request body is larger than {self._max_bytes} bytes")


class _Patience:
    """Cancels the task that makes it once a body has paused for ``pause_s`` or taken ``timeout_s``; then ``is_over``.

    That flag, and no look at the clock, tells who has cancelled: a timer may fire early by the clock's grain.
    """

    __slots__ = (
        "_arrived_at_s",
        "_ends_at_s",
        "_loop",
        "_pause_s",
        "_timeout_s",
        "_timer",
        "is_over",
        "limit_s",
        "task",
    )

    def __init__(self, pause_s: float, timeout_s: float) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "requests are answered in tasks"
        self.task = task
        self.is_over = False
        self.limit_s = min(pause_s, timeout_s)
        self._loop = loop
        self._pause_s = pause_s
        self._timeout_s = timeout_s
        self._arrived_at_s = loop.time()
        self._ends_at_s = self._arrived_at_s + timeout_s
        self._timer = loop.call_at(self._arrived_at_s + self.limit_s, self._fire)

    def renew(self) -> None:
        """A piece has arrived."""
        self._arrived_at_s = self._loop.time()

    def end(self) -> None:
        """The body is there, or nobody waits for it any more."""
        self._timer.cancel()

    def _fire(self) -> None:
        due_s = min(self._arrived_at_s + self._pause_s, self._ends_at_s)
        if due_s - self._loop.time() > _CLOCK_GRAIN_S:
            self._timer = self._loop.call_at(due_s, self._fire)
            return
        if due_s == self._ends_at_s:
            self.limit_s = self._timeout_s
        self.is_over = True
        self.task.cancel()
