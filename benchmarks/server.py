"""A ``tribar serve`` process on a free port, for benchmarks that go over HTTP."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

URL = re.compile(r"http://127\.0\.0\.1:\d+")


@dataclass(frozen=True, slots=True)
class Served:
    """A running server: the process of its front end, and where it listens."""

    pid: int
    url: str

    @property
    def port(self) -> int:
        """The port of ``url``."""
        return int(self.url.rpartition(":")[2])


@contextmanager
def served(*arguments: str) -> Iterator[Served]:
    """Start ``tribar serve --port 0`` with ``arguments``; yields once it is ready."""
    command = [sys.executable, "-m", "tribar", "serve", "--port", "0", "--log-level", "warning", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    with process, process.stderr as lines:
        found = next((match for line in lines if (match := URL.search(line))), None)
        if found is None:
            raise RuntimeError(f"tribar serve ended with {process.wait()} before it was ready")
        # A full pipe would stop the server.
        reader = threading.Thread(target=lambda: [None for _ in lines], daemon=True)
        reader.start()
        try:
            yield Served(process.pid, found.group())
        finally:
            process.terminate()
            reader.join()


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """The same; yields the URL."""
    with served(*arguments) as server:
        yield server.url
