"""``tribar serve``: from settings to a served model, and back down in good order."""

import logging
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import cast

import uvloop
from rich.console import Console

from tribar.app.accelerator import read_accelerator
from tribar.app.config import ServeConfig, ServerConfig
from tribar.app.edge import Edge
from tribar.app.front_end import FrontEnd
from tribar.app.listener import bind, is_public, url_of
from tribar.app.machine import read_machine
from tribar.app.model import open_model
from tribar.app.open_files import raise_open_files_limit
from tribar.app.pull import DownloadBar
from tribar.app.resolve import resolve
from tribar.telemetry.logs import LogFormat, configure_logging

RESERVED_FILES = 128
"""Kept for everything but connections: the engine must find one when it is started again."""


def launch(config: ServeConfig) -> int:
    """Serve until SIGTERM or SIGINT; the exit code is 0 after a drain.

    Raises a ``TribarError`` in one line for what keeps the server from starting.
    """
    started_s = time.monotonic()
    _configure_logging(config.server)
    console = Console(stderr=True)
    edge = Edge.of(config.server, max(1, raise_open_files_limit() - RESERVED_FILES))
    listener = bind(config.server.host, config.server.port)
    try:
        if is_public(listener) and edge.keys is None:
            console.print(f"[yellow]warning:[/] {url_of(listener)} can be reached from the network, without a key")
        with DownloadBar(config.model.model) as bar:
            opened = open_model(config.model, bar)
        machine = read_machine()
        resolved = resolve(config, machine, opened.facts, read_accelerator(config.engine.device, os.environ))
        directory = Path(tempfile.mkdtemp(prefix="tribar-"))  # mode 0700: the engine's socket is ours alone
        try:
            front_end = FrontEnd(config.server, machine, opened, resolved, listener, directory, edge)
            return uvloop.run(front_end.run(console, started_s))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        listener.close()


def _configure_logging(server: ServerConfig) -> None:
    configure_logging(
        cast(LogFormat, server.log_format),
        stream=sys.stderr,
        level=logging.getLevelNamesMapping()[server.log_level.upper()],
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its start and end are ours to tell
