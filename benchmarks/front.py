"""The front end alone, on one core, before a ``clock_engine``: the server's own parts, without its supervisor.

python -m benchmarks.front --socket PATH [--core 0]     prints its port once it is ready
"""

import argparse
import asyncio
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop

from benchmarks.clock_engine import CARD, clock_text
from benchmarks.processes import cores
from tribar.app.collector import settle_collector
from tribar.app.http_connection import ConnectionLimits
from tribar.app.http_server import HttpServer
from tribar.app.listener import bind
from tribar.app.open_files import raise_open_files_limit
from tribar.engine.client import EngineClient
from tribar.gateway.app import build_app
from tribar.gateway.catalog import ServedModel, StaticCatalog
from tribar.gateway.vocabulary import Vocabulary
from tribar.wire.unix_socket import UnixSocketChannel


@dataclass(frozen=True, slots=True)
class Front:
    """A running front end."""

    pid: int
    port: int
    core: int
    other_core: int


@contextmanager
def front_end(tokens_per_s: float) -> Iterator[Front]:
    """A front end on the first core and its engine on the last one, where the load generator belongs as well."""
    core, other_core = cores()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "engine.sock"
        engine = _module("clock_engine", "--tokens-per-s", str(tokens_per_s), "--core", str(other_core), path=path)
        front = _module("front", "--core", str(core), path=path)
        try:
            assert front.stdout is not None
            yield Front(front.pid, int(front.stdout.readline()), core, other_core)
        finally:
            for process in (front, engine):
                process.kill()
                process.communicate()


def _module(name: str, *arguments: str, path: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", f"benchmarks.{name}", "--socket", str(path), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE)


async def serve(path: Path) -> None:
    """Serve until killed."""
    listener = bind("127.0.0.1", 0)
    text = clock_text()
    client = EngineClient(functools.partial(UnixSocketChannel.connect, path), text)
    catalog = StaticCatalog({CARD.name: ServedModel(client, Vocabulary(text.tokenizer.token_bytes))})
    limits = ConnectionLimits(max_connections=raise_open_files_limit() - 100)
    serving = asyncio.create_task(client.run())
    HttpServer(build_app(catalog), listener, limits).start()
    await client.wait_ready()
    settle_collector()
    print(listener.getsockname()[1], flush=True)
    await serving


def main() -> None:
    """Serve on one core."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--core", type=int)
    options = parser.parse_args()
    if options.core is not None:
        os.sched_setaffinity(0, {options.core})
    uvloop.run(serve(options.socket))


if __name__ == "__main__":
    main()
