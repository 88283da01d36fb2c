"""A ``tribar serve`` process on a free port, for benchmarks that go over HTTP."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

URL = re.compile(r"http://127\.0\.0\.1:\d+")


@contextmanager
def serving(*arguments: str) -> Iterator[str]:
    """Start ``tribar serve --port 0`` with ``arguments``; yields its URL once it is ready."""
    command = [sys.executable, "-m", "tribar", "serve", "--port", "0", *arguments]
    environment = {**os.environ, "NO_COLOR": "1", "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        for line in process.stdout:
            if found := URL.search(line):
                yield found.group()
                return
        raise RuntimeError(f"tribar serve ended with {process.wait()} before it was ready")
    finally:
        process.terminate()
        process.stdout.read()
        process.wait()
