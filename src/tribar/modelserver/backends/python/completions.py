"""Processes that are started to answer one question about a model: what it makes of its configuration."""

import os
import signal
import socket
import subprocess
from contextlib import suppress
from threading import Lock
from time import monotonic

from tribar.core.errors import BadModelFile, Unavailable
from tribar.modelserver.backends.python.arena import memory_file
from tribar.modelserver.backends.python.messages import Complete, Ready, front_end_frames
from tribar.modelserver.backends.python.process import worker_command, worker_environment

COMPLETION_TIMEOUT_S = 120.0
"""How long ``auto_complete_config`` may take, imports included."""

_RECEIVE_BYTES = 64 * 1024


class Completions:
    """Asks from any thread; ``close`` ends what is being asked."""

    def __init__(self, *, timeout_s: float = COMPLETION_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        self._lock = Lock()
        self._channels: set[socket.socket] = set()
        self._is_closed = False

    def ask(self, message: Complete) -> Ready:
        """The answer of a worker that is started for this one message. Blocks.

        Raises ``BadModelFile`` where it ends or takes too long, ``Unavailable`` once closed.
        """
        ours, theirs = socket.socketpair()
        with ours:
            try:
                with self._lock:
                    if self._is_closed:
                        raise Unavailable("the server is stopping")
                    self._channels.add(ours)
                worker = _start(theirs)
            except BaseException:
                self._drop(ours)
                raise
            finally:
                theirs.close()
            with worker:
                try:
                    answer = self._answer(ours, message)
                finally:
                    self._drop(ours)
                    # with all that it started: it leads a group of its own
                    with suppress(ProcessLookupError):
                        os.killpg(worker.pid, signal.SIGKILL)
        if answer is None:
            code = worker.returncode
            raise BadModelFile(f"{message.path}: the process that asked auto_complete_config ended (exit code {code})")
        return answer

    def close(self) -> None:
        """End what is being asked, and ask nothing more. Idempotent."""
        with self._lock:
            self._is_closed = True
            for channel in self._channels:
                with suppress(OSError):  # its worker has just ended
                    channel.shutdown(socket.SHUT_RDWR)

    def _answer(self, channel: socket.socket, message: Complete) -> Ready | None:
        """None where the other end closed."""
        frames = front_end_frames()
        deadline_s = monotonic() + self._timeout_s
        try:
            channel.settimeout(self._timeout_s)
            channel.sendall(frames.frame(message))
            while data := channel.recv(_RECEIVE_BYTES):
                for answer in frames.feed(data):
                    if isinstance(answer, Ready):
                        return answer
                # what arrives in between, as log lines, gives no more time
                channel.settimeout(max(1e-3, deadline_s - monotonic()))
        except TimeoutError:
            raise BadModelFile(f"{message.path}: auto_complete_config took longer than {self._timeout_s:g} s") from None
        return None

    def _drop(self, channel: socket.socket) -> None:
        with self._lock:
            self._channels.discard(channel)


def _start(channel: socket.socket) -> "subprocess.Popen[bytes]":
    unused = memory_file("tribar-completion")
    try:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and module
            worker_command(channel.fileno(), unused, unused),
            stdin=subprocess.DEVNULL,
            pass_fds=(channel.fileno(), unused),
            start_new_session=True,
            env=dict(worker_environment(1)),
        )
    finally:
        os.close(unused)
