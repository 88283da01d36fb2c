"""Server-sent events as raw bytes (WHATWG HTML, section 9.2), paced by the reader."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

from starlette.types import Send

from tribar.core.errors import Cancelled, TribarError
from tribar.gateway.problem import error_json

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventSink:
    """One streamed response. It starts with its first byte, so an earlier error can still have its own status.

    Every send has to go through within ``stall_timeout_s``; a reader that takes nothing for so long gets
    ``Cancelled``. Nothing is buffered here: the server's own buffer (bounded by its high-water mark) is all there is.
    """

    def __init__(
        self,
        send: Send,
        *,
        ping_interval_s: float,
        stall_timeout_s: float,
        write_error: Callable[[TribarError], bytes] = error_json,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.is_started = False
        self._is_ended = False
        self._is_stalled = False
        self._send = send
        self._ping_interval_s = ping_interval_s
        self._stall_timeout_s = stall_timeout_s
        self._write_error = write_error
        self._sleep = sleep
        self._lock = asyncio.Lock()
        self._is_quiet = True

    async def write(self, events: bytes) -> None:
        """Send whole events. Raises ``Cancelled`` when the reader stalls."""
        self._is_quiet = False
        await self._emit(events, more=True)

    async def finish(self, events: bytes) -> None:
        """Send the last events and end the response."""
        await self._emit(events, more=False)

    async def fail(self, error: TribarError) -> None:
        """End with an error event: no finish reason and no ``[DONE]`` follow, so no client takes it for an end.

        Does nothing for a reader that has stalled: it would only stall again.
        """
        if self._is_stalled:
            return
        await self._emit(b"data: " + self._write_error(error) + b"\n\n", more=False)

    async def ping_forever(self) -> NoReturn:
        """Send a comment for every interval without an event, also before the first one."""
        while True:
            await self._sleep(self._ping_interval_s)
            if self._is_quiet:
                await self._emit(PING, more=True)
            self._is_quiet = True

    async def _emit(self, data: bytes, *, more: bool) -> None:
        try:
            async with asyncio.timeout(self._stall_timeout_s), self._lock:
                if self._is_ended:
                    return  # a ping that waited for the lock while the last event went out
                if not self.is_started:
                    self.is_started = True
                    await self._send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
                self._is_ended = not more
                await self._send({"type": "http.response.body", "body": data, "more_body": more})
        except TimeoutError:
            self._is_stalled = True
            raise Cancelled(f"the reader took nothing for {self._stall_timeout_s:g} s") from None
