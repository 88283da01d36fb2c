"""``python -m tribar serve`` as a child of the test, over scripted models."""

import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai

TIMEOUT_S = 30.0

SCRIPT: dict[str, Any] = {
    "context_length": 4096,
    "default": "echo",
    "replies": [
        {"match": "fish", "steps": ["A fish: ", 240, 159, 144, 159, "."]},
        {"match": "brief", "steps": [{"repeat": 20, "steps": [{"pause_s": 0.02}, "tick "]}]},
        {"match": "endless", "steps": [{"repeat": 100000, "steps": [{"pause_s": 0.02}, "tock "]}]},
        {"match": "flood", "steps": [{"repeat": 1000000, "steps": ["x"]}]},
    ],
}


def write_model(directory: Path, **changes: object) -> Path:
    """A scripted model file."""
    path = directory / "tiny.fake.json"
    path.write_text(json.dumps(SCRIPT | changes))
    return path


class Engine:
    """A process that is not our child."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)

    def __del__(self) -> None:
        os.close(self._pidfd)

    def kill(self) -> None:
        """SIGKILL, and wait for its effect."""
        signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        self.wait()

    def wait(self) -> None:
        """A pidfd is readable once its process has ended."""
        assert self.has_ended(TIMEOUT_S)

    def has_ended(self, timeout_s: float = 0) -> bool:
        """Whether it ends within ``timeout_s``."""
        return bool(select.select([self._pidfd], [], [], timeout_s)[0])


class Server:
    """A server process; its stderr is collected line by line."""

    def __init__(self, *arguments: str) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tribar", "serve", *arguments],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "COLUMNS": "200", "TMPDIR": self._directory.name},
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._is_over = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip())
                self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def wait_for_line(self, pattern: str, occurrence: int = 1) -> re.Match[str]:
        """The ``occurrence``-th line that matches; fails when the output ends before."""

        def found() -> list[re.Match[str]]:
            return [match for line in self.lines if (match := re.search(pattern, line)) is not None]

        with self._changed:
            self._changed.wait_for(lambda: self._is_over or len(found()) >= occurrence, TIMEOUT_S)
            assert len(found()) >= occurrence, "\n".join(self.lines)
            return found()[occurrence - 1]

    @property
    def port(self) -> int:
        """The real port, as the panel prints it once the server is ready."""
        return int(self.wait_for_line(r"URL +http://127\.0\.0\.1:(\d+)")[1])

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"http://127.0.0.1:{self.port}"

    def client(self, **options: Any) -> openai.OpenAI:
        """An OpenAI client without retries."""
        return openai.OpenAI(
            base_url=f"{self.url}/v1", **{"api_key": "none", "max_retries": 0, "timeout": TIMEOUT_S, **options}
        )

    def engine(self) -> Engine:
        """The engine's process, the server's only child."""
        pid = self.process.pid
        (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return Engine(int(child))

    def engine_to_be(self) -> Engine:
        """The engine's process as soon as it exists, long before it is ready."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        end = deadline()
        while not (found := children.read_text().split()):
            assert time.monotonic() < end
        return Engine(int(found[0]))

    def wait(self) -> int:
        """Its exit code."""
        code = self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        return code

    def end(self) -> None:
        """Kill it where it still runs, and clean up."""
        if self.process.poll() is None:
            self.process.kill()
        self.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        self._directory.cleanup()

    def left_files(self) -> list[str]:
        """What it left in its directory for temporary files."""
        return [path.name for path in Path(self._directory.name).iterdir()]

    def stop(self) -> int:
        """SIGTERM and the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()


@contextmanager
def serving(*arguments: str) -> Iterator[Server]:
    """A server on a free port that leaves nothing behind, whatever the test does to it."""
    server = Server("--port", "0", *arguments)
    try:
        yield server
    finally:
        server.end()


def deadline() -> float:
    """When to give up."""
    return time.monotonic() + TIMEOUT_S


def ask(client: openai.OpenAI, text: str, **options: Any) -> str:
    """The answer to one message."""
    answer = client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": text}], **options)
    return answer.choices[0].message.content or ""


def stream(client: openai.OpenAI, text: str, **options: Any) -> Iterator[str]:
    """The answer to one message, piece by piece; closing it closes its connection."""
    with client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": text}], stream=True, **options
    ) as chunks:
        for chunk in chunks:
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content
