"""One child process: started, listened to, ended together with everything that it started itself."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Self

from tribar.core.errors import Unavailable
from tribar.core.ports import ProcessSpec

MAX_LINE_BYTES = 4096
_LAST_WORDS_S = 1.0

Log = Callable[[str, str], None]
"""``log(process_name, line)``: receives what a child writes."""


class Child:
    """A running ``python -m target``, leader of a process group of its own. Made by ``start``.

    Its standard output and error are forwarded line by line; a line is cut at ``MAX_LINE_BYTES``.
    """

    def __init__(self, process: asyncio.subprocess.Process, output: "_Output") -> None:
        self._process = process
        self._output = output

    @classmethod
    async def start(cls, spec: ProcessSpec, log: Log) -> Self:
        """Start ``spec``. Raises ``Unavailable`` where the system has no room for another process.

        The group of its own keeps a terminal's Ctrl-C away from it (the front end drains it instead) and lets
        ``wait`` end its descendants too.
        """
        try:
            read_end, write_end = os.pipe()
        except OSError as error:
            raise Unavailable(f"cannot start {spec.name}: {error.strerror}") from error
        # A pipe of our own rather than asyncio's: Process.wait() may wait for asyncio's pipes, which a grandchild
        # can keep open for ever.
        output = await _Output.open(read_end, lambda line: log(spec.name, line))
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                spec.target,
                *spec.arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                start_new_session=True,
            )
        except OSError as error:
            output.close()
            raise Unavailable(f"cannot start {spec.name}: {error.strerror}") from error
        finally:
            os.close(write_end)
        return cls(process, output)

    @property
    def pid(self) -> int:
        """Its process id, which is its group's id too."""
        return self._process.pid

    @property
    def last_line(self) -> str:
        """The last non-empty line that it wrote."""
        return self._output.last_line

    async def wait(self) -> int:
        """Its exit code, minus the signal's number where a signal ended it. Then its whole group is gone."""
        code = await self._process.wait()
        self.kill()
        await self._output.end(_LAST_WORDS_S)
        return code

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)

    def kill(self) -> None:
        """End it and all its descendants that stayed in its group (SIGKILL). Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)


class _Output(asyncio.Protocol):
    """The reading end of a child's output: cuts it into lines."""

    def __init__(self, on_line: Callable[[str], None]) -> None:
        self.last_line = ""
        self._on_line = on_line
        self._buffer = bytearray()
        self._is_cut = False
        self._transport: asyncio.BaseTransport | None = None
        self._ended = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, read_end: int, on_line: Callable[[str], None]) -> "_Output":
        """Start reading ``read_end``, which it owns from here on."""
        loop = asyncio.get_running_loop()
        _, output = await loop.connect_read_pipe(lambda: cls(on_line), os.fdopen(read_end, "rb", buffering=0))
        return output

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Reading began."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Some bytes: hand over the complete lines, keep a bounded rest."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._keep(line)
            self._emit()
        self._keep(rest)

    def connection_lost(self, error: Exception | None) -> None:
        """Nobody holds the writing end any more."""
        self._emit()
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
