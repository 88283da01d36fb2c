"""Models of real files behind their backend: loaded as the repository loads them, asked as the scheduler asks."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tritonclient.grpc.model_config_pb2 import ModelConfig

from tribar.core.errors import TribarError
from tribar.core.inference import InferRequest, Parameters
from tribar.core.tensors import DataType, Tensor
from tribar.modelserver.backends.base import Backend, Execution, Instance, InstanceSpec
from tribar.modelserver.model_config import complete, parse_config, signature_of, validate

Array = npt.NDArray[Any]


class Answer:
    """A reply: what one request of a batch got."""

    def __init__(self, request: InferRequest) -> None:
        self.request = request
        self.outputs: dict[str, Array] = {}
        self.error: TribarError | None = None

    def is_cancelled(self) -> bool:
        return False

    def watch(self, taken: Callable[[], None]) -> None:
        raise AssertionError("only a decoupled model watches")

    def send(self, outputs: Sequence[Tensor], *, parameters: Parameters | None = None, is_final: bool = True) -> None:
        self.outputs = {tensor.name: tensor.data for tensor in outputs}
        self.datatypes = {tensor.name: tensor.datatype for tensor in outputs}

    def fail(self, error: TribarError, *, is_final: bool = True) -> None:
        self.error = error


def completed(backend: Backend, directory: Path, text: str = "") -> ModelConfig:
    """The configuration of the version in ``directory``, from what ``text`` leaves open."""
    folder = directory.parent
    config = complete(parse_config(text.encode(), file="config.pbtxt"), name=folder.name, directory=folder)
    config = complete(backend.complete(directory, config), name=folder.name, directory=folder)
    validate(config, name=folder.name, directory=folder)
    return config


def spec_of(backend: Backend, directory: Path, text: str = "", **changes: Any) -> InstanceSpec:
    """One instance of the version in ``directory``."""
    config = completed(backend, directory, text)
    signature = signature_of(config, versions=[1])
    spec = InstanceSpec(name="m_0", index=0, directory=directory, version="1", config=config, signature=signature)
    return replace(spec, **changes)


@asynccontextmanager
async def opened(backend: Backend, directory: Path, text: str = "", **changes: Any) -> AsyncGenerator[Instance, None]:
    """An instance that is closed in the end."""
    instance = await backend.open(spec_of(backend, directory, text, **changes))
    try:
        yield instance
    finally:
        await instance.close()


async def asked(
    instance: Instance, *batch: dict[str, Array], wanted: Sequence[Sequence[str] | None] = ()
) -> list[Answer]:
    """The answers to the requests of one batch; ``wanted`` are the outputs that each names."""
    outputs = [*wanted, *[None] * (len(batch) - len(wanted))]
    answers = [
        Answer(InferRequest(model_name="m", inputs=[tensor(*item) for item in inputs.items()], outputs=names))
        for inputs, names in zip(batch, outputs, strict=True)
    ]
    await instance.execute(Execution(answers, start_ns=1))
    return answers


def tensor(name: str, array: Array) -> Tensor:
    """Of the type that the array has; 16 bits without sign are taken as BF16."""
    kinds = {datatype.dtype: datatype for datatype in DataType if datatype is not DataType.UINT16}
    return Tensor(name, kinds[array.dtype], array)


def text(*elements: bytes) -> Array:
    """BYTES."""
    array = np.empty(len(elements), object)
    array[:] = elements
    return array
