"""The lines that a child process writes, for the log."""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import cast

MAX_LINE_BYTES = 4096

LINE_COST_BYTES = 256
"""What a line counts for beside its bytes: a record of the log is more work than its text."""

MAX_LINES_AT_ONCE = 16
"""Then the event loop has its turn: so many records take about a millisecond."""


class ChildOutput(asyncio.Protocol):
    """The reading end of a child's output: cuts it into lines, each at most ``MAX_LINE_BYTES`` long.

    With ``max_bytes_per_s`` a child that writes more is held up, as by a slow terminal; each of its lines counts for
    ``LINE_COST_BYTES`` more. Nobody has
    to read on while ``MAX_LINES_AT_ONCE`` at a time are logged.
    """

    def __init__(self, on_line: Callable[[str], None], max_bytes_per_s: int | None = None) -> None:
        self.last_line = ""
        self._on_line = on_line
        self._max_bytes_per_s = max_bytes_per_s
        self._paid_until_s = 0.0
        self._lines: deque[bytes] = deque()
        """Complete ones that wait for their turn. Until then nothing is read: they are never more than one read."""
        self._buffer = bytearray()
        self._is_cut = False
        self._transport: asyncio.ReadTransport | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()

    @classmethod
    async def open(
        cls, read_end: int, on_line: Callable[[str], None], max_bytes_per_s: int | None = None
    ) -> "ChildOutput":
        """Start reading ``read_end``, which it owns from here on."""
        loop = asyncio.get_running_loop()
        _, output = await loop.connect_read_pipe(
            lambda: cls(on_line, max_bytes_per_s), os.fdopen(read_end, "rb", buffering=0)
        )
        return output

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reading began."""
        self._transport = cast("asyncio.ReadTransport", transport)

    def data_received(self, data: bytes) -> None:
        """Some bytes: hand over the complete lines, keep a bounded rest."""
        self._lines.extend(data.split(b"\n"))
        self._go_on()

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody holds the writing end any more."""
        self._lines.clear()
        self._emit()
        self._transport = None
        if not self._ended.done():
            self._ended.set_result(None)

    async def end(self, timeout_s: float) -> None:
        """Wait for the last bytes, but no longer than a descendant outside the group may keep the pipe open."""
        await asyncio.wait([self._ended], timeout=timeout_s)
        self.close()

    def close(self) -> None:
        """Stop reading. Idempotent."""
        if self._transport is not None:
            self._transport.close()

    def _go_on(self) -> None:
        """Hand over some lines, and read on, or come back, when more may be."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        lines, cost = self._lines, 0
        for _ in range(min(MAX_LINES_AT_ONCE, len(lines) - 1)):
            cost += len(lines[0]) + LINE_COST_BYTES
            self._keep(lines.popleft())
            self._emit()
        if len(lines) == 1:
            cost += len(lines[0])
            self._keep(lines.popleft())
        delay_s = self._delay_s(cost)
        if lines or delay_s > 0:
            transport.pause_reading()
            self._loop.call_later(delay_s, self._go_on)
        else:
            transport.resume_reading()

    def _delay_s(self, cost: int) -> float:
        """How long to wait after having spent that. What was not spent in the last second may be at once."""
        if self._max_bytes_per_s is None:
            return 0.0
        now_s = self._loop.time()
        self._paid_until_s = max(self._paid_until_s, now_s - 1.0) + cost / self._max_bytes_per_s
        return max(0.0, self._paid_until_s - now_s)

    def _keep(self, piece: bytes) -> None:
        room = MAX_LINE_BYTES - len(self._buffer)
        self._buffer += piece[:room]
        self._is_cut |= len(piece) > room

    def _emit(self) -> None:
        line = self._buffer.decode("utf-8", "replace").rstrip() + (" [cut]" if self._is_cut else "")
        self._buffer.clear()
        self._is_cut = False
        if line:
            self.last_line = line
            self._on_line(line)
