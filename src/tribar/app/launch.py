"""``tribar serve``: from settings to a served model, and back down in good order."""

import functools
import logging
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import uvloop
from prometheus_client import CollectorRegistry
from rich.console import Console

from tribar.app.accelerator import read_accelerator, read_gpus
from tribar.app.config import ServeConfig, ServerConfig
from tribar.app.edge import Edge
from tribar.app.front_end import FrontEnd, MakePool
from tribar.app.hosting import LanguageModel, Models
from tribar.app.listener import bind, is_public, url_of
from tribar.app.machine import MachineFacts, read_machine
from tribar.app.model import OpenedModel, open_model
from tribar.app.open_files import raise_open_files_limit
from tribar.app.pool import HostedPool
from tribar.app.pull import DownloadBar
from tribar.app.resolve import ResolvedConfig, resolve
from tribar.app.shared_stores import required_redis_url
from tribar.core.errors import InvalidRequest
from tribar.runtime.sources import DEFAULT_MODEL
from tribar.telemetry.logs import LogFormat, configure_logging

_LIBRARY_SETTINGS: Final = {
    # Workers are new programs: gRPC would only warn of each, or have it crash between fork and exec.
    "GRPC_ENABLE_FORK_SUPPORT": "0",
    # onnxruntime sends statistics of its use to its maker and leaves a file in the directory for temporary ones.
    "ORT_DISABLE_TELEMETRY": "1",
}
"""What libraries of the model server read when they are imported; the operator's own values stand."""

RESERVED_FILES = 128
"""Kept for everything but connections: the engine must find one when it is started again."""


def launch(config: ServeConfig) -> int:
    """Serve until SIGTERM or SIGINT; the exit code is 0 after a drain.

    Raises a ``TribarError`` in one line for what keeps the server from starting.
    """
    started_s = time.monotonic()
    set_up_logging(config.server)
    console, machine = Console(stderr=True), read_machine()
    edge = Edge.of(config, max(1, raise_open_files_limit() - RESERVED_FILES))
    listener = bind(config.server.host, config.server.port)
    try:
        if is_public(listener) and edge.keys is None:
            console.print(f"[yellow]warning:[/] {url_of(listener)} can be reached from the network, without a key")
        is_gateway = config.cluster.role == "gateway"
        has_engine = not (is_gateway or _has_no_engine(config))
        directory = Path(tempfile.mkdtemp(prefix="tribar-"))  # mode 0700: the engine's socket is ours alone
        try:
            front_end = FrontEnd(
                config.server,
                machine,
                listener,
                directory,
                edge,
                language_model=open_and_resolve(config, machine) if has_engine else None,
                make_cluster=_make_cluster(config, edge) if is_gateway else None,
                make_models=_make_models(config, machine, edge),
                make_pool=_make_pool(config),
            )
            return uvloop.run(front_end.run(console, started_s))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    finally:
        listener.close()


def set_up_logging(server: ServerConfig) -> None:
    """Logs as the settings say."""
    configure_logging(
        cast(LogFormat, server.log_format),
        stream=sys.stderr,
        level=logging.getLevelNamesMapping()[server.log_level.upper()],
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)  # its start and end are ours to tell


def _has_no_engine(config: ServeConfig) -> bool:
    """A repository or a pool needs no language model beside it; without one, the default model is there to serve."""
    if config.model.model is not None or config.pool_tables.has_engine:
        return False
    return bool(config.modelserver.model_repository) or bool(config.pool_tables.upstreams)


def _make_pool(config: ServeConfig) -> MakePool | None:
    tables = config.pool_tables
    return functools.partial(HostedPool, config.pool, tables) if tables.upstreams else None


def _make_cluster(config: ServeConfig, edge: Edge) -> Callable[[CollectorRegistry], LanguageModel]:
    """Of the model this reads the tokenizer only."""
    url = required_redis_url(config.stores, "--role gateway")
    from tribar.app.cluster import HostedCluster

    return functools.partial(HostedCluster, url, config.cluster, fetch_and_open(config), edge.public_prefix)


def fetch_and_open(config: ServeConfig) -> OpenedModel:
    """The configured model, fetched where it is not here yet."""
    with DownloadBar(config.model.model or DEFAULT_MODEL) as bar:
        return open_model(config.model, bar)


def open_and_resolve(config: ServeConfig, machine: MachineFacts) -> tuple[OpenedModel, ResolvedConfig]:
    """The configured model, and the settings that it runs with on this machine."""
    opened = fetch_and_open(config)
    accelerator = read_accelerator(config.engine.device, os.environ)
    return opened, resolve(config, machine, opened.facts, accelerator)


def _make_models(
    config: ServeConfig, machine: MachineFacts, edge: Edge
) -> Callable[[CollectorRegistry], Models] | None:
    if not config.modelserver.model_repository:
        return None
    for name, value in _LIBRARY_SETTINGS.items():
        os.environ.setdefault(name, value)
    try:
        from tribar.app.hosted_models import HostedModels
    except ModuleNotFoundError as error:
        message = f"--model-repository needs {error.name}\ntry: pip install 'tribar[models]'"
        raise InvalidRequest(message, param="model_repository") from error
    tenant_of = None if edge.keys is None else edge.keys.tenant_of
    gpus = read_gpus(os.environ)
    return functools.partial(HostedModels, config.modelserver, machine, gpus, config.server.host, tenant_of)
