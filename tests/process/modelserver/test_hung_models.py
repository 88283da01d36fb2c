"""A Python model hangs in ``execute`` while its caller waits for ever: its process is killed, its caller is told."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from tests.process.modelserver.python_models import LAB, write_model

from tribar.core.errors import Unavailable
from tribar.core.inference import InferRequest, InferResponse
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.python.backend import PythonBackend
from tribar.modelserver.model_service import ModelService
from tribar.modelserver.repository.control import Control, ControlMode
from tribar.modelserver.version_opener import VersionOpener

DEADLINE_S = 60.0
EXPLICIT = Control(mode=ControlMode.EXPLICIT, startup_models=("lab",))
HANG = "import socket; s = socket.socket(socket.AF_UNIX); s.connect({path!r}); s.recv(1)"


@dataclass
class Hanging:
    """A request inside a model that hangs. ``process`` reads the end of file once its process is gone."""

    service: ModelService
    asking: "asyncio.Task[InferResponse]"
    process: asyncio.StreamReader


@asynccontextmanager
async def hanging(folder: Path, patience_s: float) -> AsyncGenerator[Hanging, None]:
    begun: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()
    server = await asyncio.start_unix_server(lambda *streams: begun.put_nowait(streams), folder / "held")
    write_model(folder / "models" / "lab", LAB)
    python = {"python": PythonBackend(finalize_grace_s=0.2)}
    service = ModelService([folder / "models"], EXPLICIT, python, VersionOpener(n_cores=1), patience_s=patience_s)
    async with asyncio.timeout(DEADLINE_S), server:
        await service.start()
        code = HANG.format(path=str(folder / "held")).encode()
        request = InferRequest(model_name="lab", inputs=[Tensor("CODE", DataType.BYTES, np.array([code], object))])
        asking = asyncio.create_task(service.infer(request))
        process, writer = await begun.get()
        yield Hanging(service, asking, process)
        await service.close()
        writer.close()


async def test_an_unload_does_not_wait_for_ever(tmp_path: Path) -> None:
    async with hanging(tmp_path, patience_s=0.5) as hung:
        await hung.service.unload("lab")
        with pytest.raises(Unavailable, match="model 'lab' version 1 gave no answer and was unloaded"):
            await hung.asking
        assert await hung.process.read() == b""
        await hung.service.load("lab")
        assert hung.service.is_model_ready("lab")


async def test_the_end_of_the_server_does_not_wait_for_ever(tmp_path: Path) -> None:
    async with hanging(tmp_path, patience_s=DEADLINE_S) as hung:
        await hung.service.close(0.2)
        with pytest.raises(Unavailable, match="gave no answer"):
            await hung.asking
        assert await hung.process.read() == b""
