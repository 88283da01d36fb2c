"""Request bodies: their size, together and each, and the time of their arrival are bounded while they are read."""

import asyncio
from typing import Final

from starlette.types import Message

from tribar.core.errors import DeadlineExceeded, Overloaded, TooLarge
from tribar.modelserver.http.compression import inflate
from tribar.modelserver.http.exchange import Exchange
from tribar.modelserver.http.problem import client_left
from tribar.modelserver.overdue import Overdue

_INFLATE_INLINE_BYTES: Final = 1024
"""What a thousandfold growth makes of more takes longer than the loop should be held."""


class BodyReader:
    """Reads bodies of up to ``max_bytes`` each.

    Those in several pieces, and what compressed ones grow to, have ``max_all_bytes`` together until they are released.
    Each piece has ``pause_s`` to arrive, and a whole body of several ``timeout_s``.
    """

    def __init__(self, max_bytes: int, *, max_all_bytes: int, pause_s: float, timeout_s: float) -> None:
        self._max_bytes = max_bytes
        self._max_all_bytes = max_all_bytes
        self._pause_s = pause_s
        self._timeout_s = timeout_s
        self._paused = Overdue(pause_s)
        self._overdue = Overdue(timeout_s)
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
        body = await self._in_time(exchange)
        if b"content-encoding" not in headers:
            return body
        encoding = headers[b"content-encoding"].decode("latin-1")
        if len(body) > _INFLATE_INLINE_BYTES:
            body = await asyncio.to_thread(inflate, body, encoding, self._max_bytes)
        else:
            body = inflate(body, encoding, self._max_bytes)
        self._hold(exchange, len(body))
        return body

    def release(self, exchange: Exchange) -> None:
        """Its request is answered, and its body is needed no more. Idempotent."""
        self._n_bytes -= exchange.n_held_bytes
        exchange.n_held_bytes = 0

    def _hold(self, exchange: Exchange, n_bytes: int) -> None:
        if self._n_bytes + n_bytes > self._max_all_bytes:
            raise Overloaded("too many large requests are inside at the same time", retry_after_s=1.0)
        self._n_bytes += n_bytes
        exchange.n_held_bytes += n_bytes

    async def _in_time(self, exchange: Exchange) -> bytes:
        arrival = _Arrival()
        self._paused.add(arrival)
        try:
            return await self._arrived(exchange, arrival)
        except asyncio.CancelledError:
            arrival.explain(f"{self._pause_s:g} s for each piece, {self._timeout_s:g} s for all")
            raise
        finally:
            self._paused.discard(arrival)
            self._overdue.discard(arrival)

    async def _arrived(self, exchange: Exchange, arrival: "_Arrival") -> bytes:
        message = await exchange.receive()
        if message["type"] != "http.request" or message.get("more_body", False):
            return await self._join(message, exchange, arrival)
        body: bytes = message.get("body", b"")
        if len(body) > self._max_bytes:
            raise self._too_large()
        return body

    async def _join(self, message: Message, exchange: Exchange, arrival: "_Arrival") -> bytes:
        self._overdue.add(arrival)
        body = bytearray()
        while True:
            if message["type"] == "http.disconnect":
                raise client_left("the client went away before its request was complete")
            piece = message.get("body", b"")
            if len(body) + len(piece) > self._max_bytes:
                raise self._too_large()
            self._hold(exchange, len(piece))
            body += piece
            if not message.get("more_body", False):
                return bytes(body)
            if piece:
                self._paused.discard(arrival)
                self._paused.add(arrival)
            message = await exchange.receive()

    def _too_large(self) -> TooLarge:
        return TooLarge(f"the request body is larger than {self._max_bytes} bytes")


class _Arrival:
    """Cancels the task that made it if its body is overdue; cheaper than ``asyncio.timeout`` by far."""

    __slots__ = ("_is_overdue", "_task")

    def __init__(self) -> None:
        self._is_overdue = False
        self._task = asyncio.current_task()

    def on_overdue(self) -> None:
        """See ``Waiting``."""
        assert self._task is not None, "requests are answered in tasks"
        if not self._is_overdue:
            self._is_overdue = True
            self._task.cancel()

    def explain(self, limits: str) -> None:
        """Raises ``DeadlineExceeded`` if that is why the task was cancelled just now."""
        if self._is_overdue and self._task is not None and not self._task.uncancel():  # nobody else cancels it
            raise DeadlineExceeded(f"the request body did not arrive in time: {limits}") from None
