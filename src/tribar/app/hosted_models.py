"""A model repository as a part of the front end: the model server with its two protocols."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

import tribar
from tribar.app.config import ModelServerConfig
from tribar.app.machine import MachineFacts
from tribar.gateway.authentication import TenantOf, tenant_of
from tribar.modelserver.accelerators import Accelerators
from tribar.modelserver.backends.python.backend import PythonBackend
from tribar.modelserver.backends.registry import BackendRegistry
from tribar.modelserver.grpc.options import GrpcOptions
from tribar.modelserver.grpc.server import GrpcServer
from tribar.modelserver.http.app import HttpFront
from tribar.modelserver.model_service import ModelService
from tribar.modelserver.repository.control import Control, ControlMode
from tribar.modelserver.response_cache import ResponseCache
from tribar.modelserver.scheduling.recorder import BUCKETS_S, Recorder
from tribar.modelserver.settings import ServerSettings
from tribar.modelserver.shared_memory import SharedMemory
from tribar.modelserver.tracing import Traces
from tribar.modelserver.version_opener import VersionOpener
from tribar.telemetry.inference import InferenceMetrics, InferenceSource

_ENVELOPE_BYTES = 1 << 20
"""What a gRPC message may have beside the tensors that HTTP would allow."""


_LAST_ANSWERS_S = 1.0
"""Of the grace, for telling those who wait for a model that does not answer."""


class HostedModels:
    """Implements ``Models``. Make it on the event loop. ``tenant_of_key`` None lets everybody in."""

    def __init__(
        self,
        config: ModelServerConfig,
        machine: MachineFacts,
        gpus: tuple[int, ...],
        host: str,
        tenant_of_key: TenantOf | None,
        registry: CollectorRegistry,
    ) -> None:
        self._python = PythonBackend(registry)
        self._traces = Traces(None if config.trace_file is None else Path(config.trace_file))
        self._service = ModelService(
            [Path(directory) for directory in config.model_repository],
            Control(
                mode=ControlMode(config.model_control_mode),
                startup_models=config.load_model,
                poll_interval_s=config.repository_poll_s,
                is_strict=config.strict_readiness,
            ),
            BackendRegistry({"python": lambda: self._python}),
            VersionOpener(
                n_cores=machine.cores,
                cache=ResponseCache(config.response_cache_bytes) if config.response_cache_bytes else None,
                traces=self._traces,
            ),
            accelerators=Accelerators(gpus),
        )
        shared_memory = SharedMemory(is_enabled=config.allow_shared_memory)
        settings = ServerSettings(logging.getLogger("tribar"), self._traces)
        self._http = HttpFront(
            self._service,
            max_body_bytes=config.max_tensor_bytes,
            shared_memory=shared_memory,
            settings=settings,
            version=tribar.__version__,
        )
        self._grpc = GrpcServer(
            self._service,
            shared_memory=shared_memory,
            settings=settings,
            address=_address(host, config.grpc_port),
            options=GrpcOptions(max_message_bytes=config.max_tensor_bytes + _ENVELOPE_BYTES),
            tenant_of=None if tenant_of_key is None else _tenant_of(tenant_of_key),
            version=tribar.__version__,
        )
        self._host = host
        self._grpc_port = config.grpc_port
        InferenceMetrics(registry, lambda: [_source(recorder) for recorder in self._service.recorders()])

    @property
    def app(self) -> ASGIApp:
        """See ``Models``."""
        return self._http

    def is_ready(self) -> bool:
        """See ``Models``."""
        return self._service.is_ready()

    async def start(self) -> None:
        """Listen for gRPC and load what the control mode says. A model that fails to load stops nothing."""
        self._grpc_port = await self._grpc.start()
        await self._service.start()

    async def run(self) -> None:
        """Nothing of it ends by itself."""
        await asyncio.Event().wait()

    async def stop(self, grace_s: float) -> None:
        """Requests inside get ``grace_s``; models that take longer fail theirs, and end with the process."""
        self._service.drain()
        self._python.close()
        await asyncio.gather(self._grpc.stop(grace_s), self._close_service(grace_s))
        await self._traces.close()

    async def _close_service(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._service.close(max(0.0, timeout_s - _LAST_ANSWERS_S))

    def summary(self) -> dict[str, str]:
        """See ``Models``."""
        names = sorted({recorder.statistics.name for recorder in self._service.recorders()})
        return {"models": _listed(names), "gRPC": _address(self._host, self._grpc_port)}


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tenant_of(tenant_of_key: TenantOf) -> Callable[[str | None], str]:
    """For gRPC, whose metadata has a value as text."""

    def tenant(authorization: str | None) -> str:
        return tenant_of([] if authorization is None else [authorization.encode()], tenant_of_key)

    return tenant


def _listed(names: Sequence[str], n_shown: int = 10) -> str:
    if not names:
        return "none is loaded"
    more = f" and {len(names) - n_shown} more" if len(names) > n_shown else ""
    return ", ".join(names[:n_shown]) + more


def _source(recorder: Recorder) -> InferenceSource:
    return InferenceSource(
        model=recorder.statistics.name,
        version=recorder.statistics.version,
        counts=recorder.statistics,
        failures=recorder.failures,
        read_pending=recorder.read_pending,
        bounds_s=BUCKETS_S,
        queue=recorder.queue_histogram,
        compute=recorder.compute_histogram,
    )
