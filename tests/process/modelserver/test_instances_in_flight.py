"""Three instances of one model and one of another: four executions at the same time, and never a fifth."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np

from tribar.core.inference import InferRequest
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.python.backend import PythonBackend
from tribar.modelserver.model_service import ModelService
from tribar.modelserver.repository.control import Control
from tribar.modelserver.version_opener import VersionOpener

DEADLINE_S = 60.0
COUNTS = {"a": 3, "b": 1}

CONFIG = """
backend: "python"
input [ {{ name: "x" data_type: TYPE_INT32 dims: [ 1 ] }} ]
output [ {{ name: "y" data_type: TYPE_INT32 dims: [ 1 ] }} ]
instance_group [ {{ count: {count} kind: KIND_CPU }} ]
parameters {{ key: "path" value: {{ string_value: "{path}" }} }}
"""

HELD = """
import json, socket
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_instance_name"]
        self.path = json.loads(args["model_config"])["parameters"]["path"]["string_value"]

    def execute(self, requests):
        with socket.socket(socket.AF_UNIX) as test:
            test.connect(self.path)
            test.sendall(self.name.encode() + b"\\n")
            test.recv(1)
        inputs = [pb_utils.get_input_tensor_by_name(request, "x").as_numpy() for request in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", array)]) for array in inputs]
"""
"""An execution tells the test which instance it is on, and ends when the test hangs up."""


class Executions:
    """Those in flight: each instance's name comes with its connection, and stays until it is released."""

    def __init__(self) -> None:
        self._began: asyncio.Queue[str] = asyncio.Queue()
        self._held: dict[str, asyncio.StreamWriter] = {}

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = (await reader.readline()).decode().strip()
        assert name not in self._held, f"{name} runs two executions at a time"
        self._held[name] = writer
        self._began.put_nowait(name)

    async def next(self) -> str:
        """The instance of the next execution that begins."""
        return await self._began.get()

    async def release(self, name: str) -> None:
        writer = self._held.pop(name)
        writer.close()
        await writer.wait_closed()

    @property
    def held(self) -> set[str]:
        return set(self._held)


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[ModelService, Executions]]:
    executions, path = Executions(), folder / "held"
    for model, count in COUNTS.items():
        version = folder / "models" / model / "1"
        version.mkdir(parents=True)
        (version.parent / "config.pbtxt").write_text(CONFIG.format(count=count, path=path))
        (version / "model.py").write_text(HELD)
    server = await asyncio.start_unix_server(executions.connected, path)
    service = ModelService([folder / "models"], Control(), {"python": PythonBackend()}, VersionOpener(n_cores=1))
    async with asyncio.timeout(DEADLINE_S), server:
        await service.start()
        yield service, executions
        await service.close()


def ask(service: ModelService, model: str, value: int) -> "asyncio.Task[int]":
    async def infer() -> int:
        x = Tensor("x", DataType.INT32, np.array([value], np.int32))
        response = await service.infer(InferRequest(model_name=model, inputs=[x]))
        return int(response.outputs[0].data[0])

    return asyncio.create_task(infer())


async def test_three_of_one_model_and_one_of_another_are_all_in_flight(tmp_path: Path) -> None:
    async with serving(tmp_path) as (service, executions):
        tasks = [ask(service, "a", value) for value in range(3)] + [ask(service, "b", 3)]
        began = {await executions.next() for _ in tasks}
        assert began == executions.held == {"a_0_0", "a_0_1", "a_0_2", "b_0"}

        more = [ask(service, "a", 4), ask(service, "b", 5)]
        await executions.release("a_0_1")
        assert await executions.next() == "a_0_1"  # the fifth waited, for the instance that was released
        assert executions.held == began
        await executions.release("b_0")
        assert await executions.next() == "b_0"
        for name in began:
            await executions.release(name)
        assert await asyncio.gather(*tasks, *more) == list(range(6))
