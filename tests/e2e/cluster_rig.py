"""A cluster on one machine: a real Valkey, ``tribar engine`` and gateways as processes, over a scripted model."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.server_process import TIMEOUT_S, Server
from tests.servers.valkey import Valkey, valkey

LIVENESS_S = 2.0
START_S = 120.0


class EngineProcess:
    """``python -m tribar engine``; what it writes is kept."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tribar", "engine", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TRIBAR_DRAIN_TIMEOUT": "20"},
        )
        self.lines: list[str] = []
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._changed:
                self.lines.append(line.rstrip())
                self._changed.notify_all()

    def wait_joined(self, occurrence: int = 1) -> None:
        """Until it has joined the cluster so many times."""
        with self._changed:
            assert self._changed.wait_for(
                lambda: sum("is known as" in line for line in self.lines) >= occurrence, START_S
            ), "\n".join(self.lines)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(TIMEOUT_S)

    def terminate(self) -> None:
        """SIGTERM, without waiting."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Its exit code."""
        return self.process.wait(TIMEOUT_S)

    def close(self) -> None:
        """End it where it runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


@dataclass
class Cluster:
    """Everything that was started ends with the block of ``cluster``."""

    redis: Valkey
    model: Path
    engines: list[EngineProcess] = field(default_factory=list)
    gateways: list[Server] = field(default_factory=list)

    @property
    def flags(self) -> tuple[str, ...]:
        return (str(self.model), "--redis-url", self.redis.url, "--cluster-liveness", str(LIVENESS_S))

    def start_engine(self, *flags: str) -> EngineProcess:
        engine = EngineProcess(*self.flags, *flags)
        self.engines.append(engine)
        return engine

    def start_gateway(self) -> Server:
        gateway = Server("--port", "0", "--role", "gateway", *self.flags)
        self.gateways.append(gateway)
        return gateway

    def start(self, n_gateways: int, n_engines: int, *flags: str) -> None:
        """Start them, and wait until they have joined."""
        for _ in range(n_engines):
            self.start_engine(*flags)
        for _ in range(n_gateways):
            self.start_gateway()
        for engine in self.engines:
            engine.wait_joined()
        for gateway in self.gateways:
            gateway.wait_for_line("is ready", n_engines)


@contextlib.contextmanager
def cluster(model: Path, *valkey_arguments: str) -> Iterator[Cluster]:
    with valkey(*valkey_arguments) as redis:
        made = Cluster(redis, model)
        try:
            yield made
        finally:
            for gateway in made.gateways:
                gateway.end()
            for engine in made.engines:
                engine.close()
