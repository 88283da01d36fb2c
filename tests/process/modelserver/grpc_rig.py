"""A gRPC server before a fake service, and models for it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal

import numpy as np
import pytest
from tests.process.modelserver.http2_peer import connected
from tritonclient.grpc import InferInput
from tritonclient.utils import InferenceServerException

from tribar.core.errors import TribarError
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.fake_service import FakeModel, FakeService
from tribar.modelserver.grpc import GrpcOptions, GrpcServer
from tribar.modelserver.service import Service
from tribar.modelserver.settings import ServerSettings
from tribar.modelserver.shared_memory import SharedMemory
from tribar.modelserver.signature import Signature, TensorSpec


class Gate(asyncio.Event):
    """A closed gate for a ``FakeModel``, which tells when a request stands before it and when one has given up."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def wait(self) -> Literal[True]:
        self.entered.set()
        try:
            return await super().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise


def signature(name: str, datatype: DataType = DataType.FP32, **changes: Any) -> Signature:
    """Of a model with one input and one output of any length."""
    described: dict[str, Any] = {
        "name": name,
        "versions": ("1",),
        "platform": "fake",
        "inputs": {"INPUT0": TensorSpec("INPUT0", datatype, (-1,))},
        "outputs": {"OUTPUT0": TensorSpec("OUTPUT0", datatype, (-1,), labels=("red", "green"))},
        "max_batch_size": 8,
    }
    return Signature(**(described | changes))


def identity(datatype: DataType = DataType.FP32, **fields: Any) -> FakeModel:
    """A model that answers its inputs."""
    return FakeModel(signature(f"identity_{datatype.lower()}", datatype), **fields)


def repeat(responses: Sequence[int | TribarError]) -> FakeModel:
    """A decoupled model that gives these numbers, whatever the input."""
    return FakeModel(
        signature("repeat_int32", DataType.INT32, is_decoupled=True, max_batch_size=0),
        responses=[
            response
            if isinstance(response, TribarError)
            else [Tensor("OUTPUT0", DataType.INT32, np.array([response], "<i4"))]
            for response in responses
        ],
    )


@asynccontextmanager
async def serving(service: Service, *, has_shared_memory: bool = True, **changes: Any) -> AsyncIterator[str]:
    """The address of a server before ``service``."""
    memory = SharedMemory(is_enabled=has_shared_memory)
    server = GrpcServer(service, shared_memory=memory, settings=ServerSettings(), address="127.0.0.1:0", **changes)
    port = await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def tensor(values: Any, datatype: str = "FP32") -> Any:
    """The input of a request, for both of tritonclient's gRPC clients."""
    array = np.asarray(values)
    given = InferInput("INPUT0", list(array.shape), datatype)
    given.set_data_from_numpy(array)
    return given


async def expect(code: str, call: Awaitable[Any]) -> str:
    """The text of the error with which a call of tritonclient fails."""
    with pytest.raises(InferenceServerException) as caught:
        await call
    assert caught.value.status() == f"StatusCode.{code}"
    return str(caught.value.message())


@asynccontextmanager
async def attacked(service: FakeService | None = None, **options: Any) -> AsyncIterator[str]:
    """The address of a server that has to answer in the end, and to have said nothing to its log."""
    async with serving(service or FakeService({"identity": identity()}), options=GrpcOptions(**options)) as address:
        yield address
        async with connected(address) as peer:
            peer.send(peer.call(1))
            assert (await peer.answer(1)).status == "0"
