"""A worker process: started with its socket and its shared memory, listened to, ended with all that it started."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Self

from tribar.core.errors import Unavailable
from tribar.modelserver.backends.python.arena import memory_file
from tribar.telemetry.child_output import ChildOutput

WORKER = "tribar.modelserver.backends.python.worker"

MAX_OUTPUT_BYTES_PER_S = 2**20
"""A model that prints more than this waits."""

_LAST_WORDS_S = 1.0


def worker_command(channel: int, inputs: int, outputs: int) -> list[str]:
    """The command line of a worker that inherits these descriptors."""
    descriptors = ["--socket", str(channel), "--inputs", str(inputs), "--outputs", str(outputs)]
    return [sys.executable, "-m", WORKER, *descriptors, "--parent-pid", str(os.getpid())]


def worker_environment(n_threads: int) -> Mapping[str, str]:
    """This process's, with the instance's share of the cores for the usual thread pools unless the operator set it."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    return {**dict.fromkeys(names, str(n_threads)), **os.environ, "PYTHONUNBUFFERED": "1"}


class WorkerProcess:
    """A running worker, leader of a process group of its own. Made by ``start``; ``close`` frees everything."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        output: ChildOutput,
        channel: socket.socket,
        inputs: int,
        outputs: int,
    ) -> None:
        self._process = process
        self._output = output
        self.channel = channel
        self.inputs = inputs
        self.outputs = outputs

    @classmethod
    async def start(cls, name: str, n_threads: int, on_line: Callable[[str], None]) -> Self:
        """Start one. Raises ``Unavailable`` where the system has no room for another process."""
        with contextlib.ExitStack() as held:
            try:
                read_end, write_end = os.pipe()
                ours, theirs = socket.socketpair()
                inputs, outputs = memory_file("tribar-inputs"), memory_file("tribar-outputs")
            except OSError as error:
                raise Unavailable(f"cannot start {name}: {error.strerror}") from error
            output = await ChildOutput.open(read_end, on_line, MAX_OUTPUT_BYTES_PER_S)
            held.callback(output.close)
            held.callback(ours.close)
            held.callback(os.close, inputs)
            held.callback(os.close, outputs)
            try:
                process = await asyncio.create_subprocess_exec(
                    *worker_command(theirs.fileno(), inputs, outputs),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=write_end,
                    stderr=write_end,
                    start_new_session=True,
                    pass_fds=(theirs.fileno(), inputs, outputs),
                    env=worker_environment(n_threads),
                )
            except OSError as error:
                raise Unavailable(f"cannot start {name}: {error.strerror}") from error
            finally:
                theirs.close()
                os.close(write_end)
            held.pop_all()
        return cls(process, output, ours, inputs, outputs)

    @property
    def pid(self) -> int:
        """Its process id, which is its group's id, too."""
        return self._process.pid

    async def wait(self) -> str:
        """How it ended, in words, once all that it wrote is logged. Then its whole group is gone."""
        code = await self._process.wait()
        self.kill()
        await self._output.end(_LAST_WORDS_S)
        return f"killed by {_signal_name(-code)}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        """End it and all that stayed in its group (SIGKILL). Idempotent."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self) -> None:
        """Close the descriptors; what is mapped stays. Once, after its end."""
        self.channel.close()
        os.close(self.inputs)
        os.close(self.outputs)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
