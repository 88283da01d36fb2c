"""Server-sent events as raw bytes (WHATWG HTML, section 9.2), paced by the reader."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence

from starlette.types import Send

from tribar.core.errors import Cancelled, TribarError
from tribar.core.ports import Clock
from tribar.gateway.guard import Lifeline
from tribar.gateway.problem import error_json
from tribar.gateway.pulse import Pulse

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"

_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


class EventSink:
    """One streamed response. It starts with its first byte, so an earlier error can still have its own status.

    Nothing is buffered here: while the server's own buffer is not empty, ``write`` waits, and what is generated
    meanwhile becomes one larger event. The ``pulse`` looks after silence and stalls from ``open`` to ``close``: a
    comment is sent for every interval without an event, also before the first one; a reader that takes nothing for
    ``stall_timeout_s`` has its ``lifeline`` broken off with ``Cancelled``.
    """

    __slots__ = (
        "_clock",
        "_headers",
        "_is_ended",
        "_is_quiet",
        "_is_stalled",
        "_lifeline",
        "_next_ping_s",
        "_ping",
        "_ping_interval_s",
        "_pulse",
        "_send",
        "_sending_since_s",
        "_stall_timeout_s",
        "_write_error",
        "is_started",
    )

    def __init__(
        self,
        send: Send,
        lifeline: Lifeline,
        pulse: Pulse,
        *,
        ping_interval_s: float,
        stall_timeout_s: float,
        write_error: Callable[[TribarError], bytes] = error_json,
        clock: Clock = time.monotonic,
    ) -> None:
        self.is_started = False
        self._headers = _HEADERS
        self._send = send
        self._lifeline = lifeline
        self._pulse = pulse
        self._ping_interval_s = ping_interval_s
        self._stall_timeout_s = stall_timeout_s
        self._write_error = write_error
        self._clock = clock
        self._is_ended = False
        self._is_stalled = False
        self._is_quiet = True
        self._ping: asyncio.Task[None] | None = None
        self._sending_since_s: float | None = None
        self._next_ping_s = clock() + ping_interval_s

    def open(self) -> None:
        """Let the pulse look after this stream."""
        self._pulse.join(self, self._next_beat_s(self._clock()))

    def add_headers(self, headers: Sequence[tuple[str, str]]) -> None:
        """Send ``headers``, too. A response that has started with a ping goes without: its head is out."""
        if headers:
            self._headers = [*self._headers, *((name.encode(), value.encode()) for name, value in headers)]

    def close(self) -> None:
        """Nobody looks after it any more. Idempotent."""
        self._pulse.leave(self)
        if self._ping is not None:
            self._ping.cancel()

    async def write(self, events: bytes) -> None:
        """Send whole events."""
        self._is_quiet = False
        if self._ping is not None:
            await asyncio.wait([self._ping])
        await self._emit(events, more=True)

    async def finish(self, events: bytes) -> None:
        """Send the last events and end the response."""
        if self._ping is not None:
            await asyncio.wait([self._ping])
        await self._emit(events, more=False)

    async def fail(self, error: TribarError) -> None:
        """End with an error event: no finish reason and no ``[DONE]`` follow, so no client takes it for an end.

        For after ``close``. Does nothing for a reader that has stalled, and gives up on one that stalls now.
        """
        if self._is_stalled or self._is_ended:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._stall_timeout_s):
                await self.finish(b"data: " + self._write_error(error) + b"\n\n")

    def beat(self, now_s: float) -> float | None:
        """See ``Beating``: break off where the reader stalls, ping where nothing was sent for an interval."""
        since_s = self._sending_since_s
        if since_s is not None and now_s - since_s >= self._stall_timeout_s:
            self._is_stalled = True
            self._lifeline.break_off(Cancelled(f"the reader took nothing for {self._stall_timeout_s:g} s"))
            return None
        if now_s >= self._next_ping_s:
            self._next_ping_s = now_s + self._ping_interval_s
            if self._is_quiet and since_s is None and not self._is_ended:
                self._sending_since_s = now_s
                self._ping = asyncio.get_running_loop().create_task(self._send_ping())
            self._is_quiet = True
        return self._next_beat_s(now_s)

    def _next_beat_s(self, now_s: float) -> float:
        """A stall that begins right after this look is seen when it has lasted its time, not later."""
        since_s = now_s if self._sending_since_s is None else self._sending_since_s
        return min(self._next_ping_s, since_s + self._stall_timeout_s)

    async def _send_ping(self) -> None:
        try:
            await self._emit(PING, more=True)
        finally:
            self._ping = None

    async def _emit(self, data: bytes, *, more: bool) -> None:
        self._sending_since_s = self._clock()
        if not self.is_started:
            self.is_started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": self._headers})
        self._is_ended = not more
        await self._send({"type": "http.response.body", "body": data, "more_body": more})
        self._sending_since_s = None
