"""The lines that a child process writes, for the log."""

import asyncio
import os
from collections.abc import Callable
from typing import cast

MAX_LINE_BYTES = 4096


class ChildOutput(asyncio.Protocol):
    """The reading end of a child's output: cuts it into lines, each at most ``MAX_LINE_BYTES`` long.

    With ``max_bytes_per_s`` a child that writes more is held up, as by a slow terminal.
    """

    def __init__(self, on_line: Callable[[str], None], max_bytes_per_s: int | None = None) -> None:
        self.last_line = ""
        self._on_line = on_line
        self._max_bytes_per_s = max_bytes_per_s
        self._second = 0
        self._n_bytes = 0
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
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._keep(line)
            self._emit()
        self._keep(rest)
        if self._max_bytes_per_s is not None:
            self._hold_up(len(data), self._max_bytes_per_s)

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody holds the writing end any more."""
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

    def _hold_up(self, n_bytes: int, max_bytes_per_s: int) -> None:
        now_s = self._loop.time()
        if int(now_s) != self._second:
            self._second, self._n_bytes = int(now_s), 0
        self._n_bytes += n_bytes
        if self._n_bytes > max_bytes_per_s and self._transport is not None:
            self._transport.pause_reading()
            self._loop.call_at(self._second + 1, self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

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
