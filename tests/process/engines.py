"""Real engine processes with scripted models."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.unit.engine.client_rig import Recorder

from tribar.engine.client import EngineClient
from tribar.engine.config import SchedulerConfig
from tribar.engine.spec import EngineSpec
from tribar.runtime.fake.text import load_fake_text
from tribar.runtime.runners import RunnerConfig
from tribar.wire.unix_socket import UnixSocketChannel

SOURCE = Path(__file__).parents[2] / "src"
DEFAULT_MODEL: dict[str, object] = {"cost": {"step_s": 0.001}}
"""Endless letters, a thousand steps per second: a stream of 4,000 tokens is open for seconds."""


@dataclass
class Engines:
    """Starts engines that share one directory, and so one socket path."""

    directory: Path
    started: list[asyncio.subprocess.Process] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        return self.directory / "engine.sock"

    @property
    def model(self) -> Path:
        return self.directory / "m.fake.json"

    def write_spec(self, model: dict[str, object], grace_s: float = 30.0) -> Path:
        self.model.write_text(json.dumps(model))
        spec = EngineSpec(
            name="m",
            runner="fake",
            runner_config=RunnerConfig(model_path=self.model, n_blocks=4096, max_model_len=8192, max_rows=8),
            scheduler=SchedulerConfig(max_num_seqs=8),
            grace_s=grace_s,
        )
        path = self.directory / "spec.json"
        path.write_bytes(spec.to_json())
        return path

    def command(self, spec: Path, *options: str) -> list[str]:
        socket = str(self.socket)
        return [sys.executable, "-m", "tribar.engine.process", "--spec", str(spec), "--socket", socket, *options]

    async def start(self, spec: Path, *options: str) -> asyncio.subprocess.Process:
        process = await asyncio.create_subprocess_exec(
            *self.command(spec, *options), env=environment(), stderr=asyncio.subprocess.PIPE
        )
        self.started.append(process)
        return process

    async def kill_all(self) -> None:
        for process in self.started:
            if process.returncode is None:
                process.kill()
            await process.communicate()


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SOURCE)}


@dataclass
class Served:
    client: EngineClient
    observer: Recorder


@contextlib.asynccontextmanager
async def client_of(engines: Engines) -> AsyncIterator[Served]:
    """A client that keeps trying to reach whatever listens on the socket."""
    observer = Recorder()

    async def sleep(_seconds: float) -> None:
        await asyncio.sleep(0.01)

    client = EngineClient(
        lambda: UnixSocketChannel.connect(engines.socket), load_fake_text(engines.model), observer=observer, sleep=sleep
    )
    task = asyncio.create_task(client.run())
    try:
        yield Served(client, observer)
    finally:
        task.cancel()
        await asyncio.wait([task])
