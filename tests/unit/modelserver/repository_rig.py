"""Repositories in a temporary directory, and a service over the fake backend."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.accelerators import Accelerators
from tribar.modelserver.backends.base import InstanceSpec
from tribar.modelserver.backends.fake import FakeBackend
from tribar.modelserver.model_service import ModelService
from tribar.modelserver.repository.control import Control, ControlMode
from tribar.modelserver.tracing import Traces
from tribar.modelserver.version_opener import VersionOpener

EXPLICIT = Control(mode=ControlMode.EXPLICIT)


def config_text(extra: str = "", *, max_batch_size: int = 8) -> str:
    return f"""backend: "fake"
max_batch_size: {max_batch_size}
input [ {{ name: "INPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
output [ {{ name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1 ] }} ]
{extra}
"""


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value: {{ string_value: "{value}" }} }}'


def write_model(root: Path, name: str, config: str | None = None, *, versions: tuple[str, ...] = ("1",)) -> Path:
    folder = root / name
    for version in versions:
        (folder / version).mkdir(parents=True, exist_ok=True)
        (folder / version / "weights").write_text(version)
    (folder / "config.pbtxt").write_text(config_text() if config is None else config)
    return folder


@asynccontextmanager
async def serving(
    *roots: Path,
    control: Control = EXPLICIT,
    on_open: Callable[[InstanceSpec], Awaitable[None]] | None = None,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    gpus: tuple[int, ...] = (),
    can_use_gpu: bool = True,
    traces: Traces | None = None,
) -> AsyncGenerator[tuple[ModelService, FakeBackend], None]:
    """A started service; afterwards it is closed, consistent, and no instance is open."""
    backend = FakeBackend(on_open=on_open, sleep=sleep, can_use_gpu=can_use_gpu)
    service = ModelService(
        roots, control, {"fake": backend}, VersionOpener(n_cores=2, traces=traces), accelerators=Accelerators(gpus)
    )
    try:
        await service.start()
        yield service, backend
        service.check()
    finally:
        await service.close()
    service.check()
    assert not backend.instances


def request(
    model: str = "m", version: str = "", values: tuple[float, ...] = (1.0, 2.0), **fields: object
) -> InferRequest:
    tensor = Tensor("INPUT0", DataType.FP32, np.array([values], np.float32))
    return InferRequest(model_name=model, model_version=version, inputs=[tensor], **fields)  # type: ignore[arg-type]


async def rows(service: ModelService) -> list[tuple[str, str, str]]:
    return [(row.name, row.version, row.state) for row in await service.index()]


async def drained(service: ModelService) -> None:
    """Wait until every retired version is gone."""
    draining = [task for served in service._lifecycle.served.values() for task in served.draining]
    await asyncio.gather(*draining)
