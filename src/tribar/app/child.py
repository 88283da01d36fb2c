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
from tribar.telemetry.child_output import ChildOutput

_LAST_WORDS_S = 1.0

Log = Callable[[str, str], None]
"""``log(process_name, line)``: receives what a child writes."""


class Child:
    """A running ``python -m target``, leader of a process group of its own. Made by ``start``.

    Its standard output and error are forwarded line by line; a line is cut at ``child_output.MAX_LINE_BYTES``.
    """

    def __init__(self, process: asyncio.subprocess.Process, output: ChildOutput) -> None:
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
        output = await ChildOutput.open(read_end, lambda line: log(spec.name, line))
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
